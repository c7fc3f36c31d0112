"""`abomed data`: from a folder of images to a verified, audited pack."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from abomed.cli import console
from abomed.config.audit import AuditSettings
from abomed.config.data import DecodeSettings, PackSettings, ReadSettings
from abomed.config.synthetic import SyntheticSettings
from abomed.errors import DataError

app = App(name="data", help="Read, pack, audit and verify images.", default_parameter=Parameter(negative=""))

Flat = Parameter(name="*")
_READ, _DECODE, _PACK = ReadSettings(), DecodeSettings(), PackSettings()
_AUDIT, _SYNTH = AuditSettings(), SyntheticSettings()


@app.command
def pack(
    source: str,
    /,
    *,
    out: Path,
    read: Annotated[ReadSettings, Flat] = _READ,
    decode: Annotated[DecodeSettings, Flat] = _DECODE,
    pack: Annotated[PackSettings, Flat] = _PACK,
    json: bool = False,
) -> None:
    """Decode every image once into one checked file. Bad files are named, counted and left out.

    Parameters
    ----------
    source
        A folder, .zip, .csv or .npz; or NAME=PATH for a known data set (`abomed data list`).
    out
        The pack to write, FILE.safetensors.
    json
        Print one JSON text instead of tables.
    """
    from abomed.data.manifest import read_manifest
    from abomed.data.refresh import refresh_pack

    manifest = read_manifest(source, read)
    if not json:
        console.say(f"{source}: {manifest.layout} [{manifest.source}]")
    with console.progress("packing") as on_progress:
        result = refresh_pack(manifest, out, decode, pack, on_progress)
    if json:
        console.print_json(
            {
                "source": manifest.source,
                "layout": manifest.layout,
                "pack": str(result.path),
                "images": result.images,
                "refused": len(result.refused),
                "unchanged": result.unchanged,
                "difference": result.difference,
                "findings": [console.finding_to_json(finding) for finding in result.findings],
            }
        )
        return
    if result.difference:
        console.say(f"since the last pack: {result.difference}")
    console.print_findings(result.findings)
    if result.unchanged:
        console.say(f"{result.path} is up to date ({result.images:,} images): nothing to do")
    else:
        left_out = f", {len(result.refused):,} refused" if result.refused else ""
        size = result.path.stat().st_size / 2**20
        console.say(f"packed {result.images:,} images{left_out} into {result.path} ({size:,.1f} MiB)")


@app.command
def audit(
    source: str,
    /,
    *,
    read: Annotated[ReadSettings, Flat] = _READ,
    decode: Annotated[DecodeSettings, Flat] = _DECODE,
    settings: Annotated[AuditSettings, Flat] = _AUDIT,
    json: bool = False,
) -> None:
    """Find what will mislead a study: leaks, duplicates, shortcuts, small classes.

    Parameters
    ----------
    source
        A pack, or anything `abomed data pack` reads.
    json
        Print one JSON text instead of tables.
    """
    from abomed.audit import audit as audit_pack
    from abomed.cli.opening import open_source

    with open_source(source, read, decode, tell=False) as opened:
        report = audit_pack(opened, settings)
    if json:
        console.print_json(report.to_json())
        return
    for table in report.tables:
        console.print_table(table.title, table.columns, table.rows)
        console.say("")
    console.print_findings(report.findings)


@app.command
def verify(
    pack: Path,
    source: str | None = None,
    /,
    *,
    read: Annotated[ReadSettings, Flat] = _READ,
    json: bool = False,
) -> None:
    """Check every byte of a pack and, where a source is given, every source file against its recorded hash.

    Parameters
    ----------
    pack
        The pack to check.
    source
        The folder or archive it was packed from. Without it only the pack itself is checked.
    json
        Print one JSON text instead of sentences.
    """
    from abomed.data.compare import compare_source
    from abomed.data.manifest import read_manifest
    from abomed.data.packed import open_pack

    opened = open_pack(pack)
    damaged = opened.damaged_blocks()
    difference = None
    if source is not None:
        with console.progress("hashing") as on_progress:
            difference = compare_source(opened, read_manifest(source, read), on_progress=on_progress)
    if json:
        console.print_json(
            {
                "pack": str(pack),
                "images": len(opened),
                "damaged": [[images.start, images.stop] for images in damaged],
                "difference": None if difference is None else difference.to_json(),
            }
        )
    if damaged:
        first = ", ".join(f"{images.start:,} to {images.stop - 1:,}" for images in damaged[:5])
        raise DataError(
            "the pack is damaged", where=str(pack), found=f"images {first} do not match their checksum",
            right="pack the source again",
        )  # fmt: skip
    if difference:
        raise DataError(
            "the source is not what was packed",
            where=str(source),
            found=f"{difference} ({', '.join(difference.some_paths())})",
            right="pack it again, or restore the files",
        )
    if not json:
        checked = "source files too" if source is not None else "the source was not given and not checked"
        console.say(f"{pack}: {len(opened):,} images match their checksums; {checked}")


@app.command
def synth(
    *,
    out: Path,
    settings: Annotated[SyntheticSettings, Flat] = _SYNTH,
    json: bool = False,
) -> None:
    """Draw the synthetic stained-cell set: a folder like a user's, or straight to a pack.

    Parameters
    ----------
    out
        A new folder (DIR/class/image.png and groups.csv), or FILE.safetensors for a pack.
    json
        Print one JSON text instead of sentences.
    """
    from abomed.data.pack import write_pack
    from abomed.data.synthetic import write_folder
    from abomed.data.synthetic_source import synthetic_manifest

    with console.progress("drawing") as on_progress:
        if out.suffix == ".safetensors":
            manifest = synthetic_manifest(settings)
            write_pack(manifest, out, DecodeSettings(), PackSettings(size=settings.size), on_progress)
        else:
            manifest = synthetic_manifest(settings)
            write_folder(settings, out, on_progress)
    if json:
        console.print_json(
            {
                "out": str(out),
                "images": len(manifest.records),
                "classes": list(manifest.class_names),
                "seed": settings.seed,
            }
        )
    else:
        console.say(
            f"drew {len(manifest.records):,} images of {len(manifest.class_names)} classes into {out}"
        )


@app.command
def fetch(name: str, /, *, into: Path = Path("data"), yes: bool = False, json: bool = False) -> None:
    """Download a known data set from its owner: resumed, checked, with its licence shown first.

    Parameters
    ----------
    name
        One of `abomed data list`.
    into
        The folder to keep it in.
    yes
        Accept the licence without being asked.
    json
        Print one JSON text instead of sentences.
    """
    from abomed.cli.consent import confirm
    from abomed.data.fetch import fetch as fetch_source
    from abomed.data.fetch import licence_notice
    from abomed.data.sources import find_source

    source = find_source(name)
    confirm(licence_notice(source), yes)
    with console.transfers() as on_progress:
        files = fetch_source(source.name, into, progress=on_progress)
    if json:
        console.print_json({"source": source.name, "files": [str(file) for file in files]})
    else:
        console.say(f"next: abomed data pack {source.name}={files[0]} --out {source.name}.safetensors")


@app.command(name="list")
def list_sources(*, json: bool = False) -> None:
    """The data sets abomed knows by name.

    Parameters
    ----------
    json
        Print one JSON text instead of a table.
    """
    from abomed.data.catalogue import SOURCES

    if json:
        console.print_json(
            {
                name: {
                    "title": s.title,
                    "images": s.published,
                    "classes": list(s.class_names),
                    "licence": s.licence,
                }
                for name, s in SOURCES.items()
            }
        )
        return
    rows = [
        (name, f"{s.published:,}", len(s.classes), s.group_kind, s.title, s.licence)
        for name, s in SOURCES.items()
    ]
    console.print_table("named sources", ("name", "images", "classes", "group", "what", "licence"), rows)
