"""Folders as labels: root/class/…/image and root/split/class/image.

A folder that can be read two ways is refused with both readings, because a guess would shift every label.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from abomed.config.data import Layout
from abomed.data.records import Reading, Record
from abomed.data.signatures import ARCHIVE_SUFFIXES, FOREIGN_SUFFIXES, IMAGE_SUFFIXES, READ_HERE
from abomed.data.table import name_some
from abomed.errors import DataError
from abomed.types import Finding, Level, counted, printable

SPLIT_NAMES = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test",
    "testing": "test",
}  # fmt: skip
MASK_MARKS = ("-d", "_d", "_mask", "-mask", "_seg", "_segmentation", "_gt", "_label")
MANY_OTHERS = 0.2
PAIRED_MASKS = 0.5


def is_candidate(path: str) -> bool:
    """Whether a file was meant as an image, readable or not. In the root, LICENSE and its like are not.

    DICOM files often have no suffix, or end in the numbers of an identifier (1.2.840.113619.2.176.7).
    """
    suffix = PurePosixPath(path).suffix.lower()
    if suffix.endswith((*IMAGE_SUFFIXES, *FOREIGN_SUFFIXES, *ARCHIVE_SUFFIXES)):
        return True
    bare = "." not in PurePosixPath(path).name or suffix[1:].isdecimal()
    return bare and "/" in path


def leave_out(paths: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Paths that match no pattern, neither as a whole nor by file name nor by a folder above."""

    def matches(path: str) -> bool:
        parents = [str(parent) for parent in PurePosixPath(path).parents]
        return any(
            fnmatchcase(name, p) for p in patterns for name in (path, PurePosixPath(path).name, *parents)
        )

    return tuple(path for path in paths if not matches(path))


def top_folder(paths: Sequence[str]) -> str:
    """The single folder that holds everything, as archives often have one, or ''."""
    tops = {path.split("/", 1)[0] for path in paths}
    nested = all("/" in path for path in paths)
    return tops.pop() if nested and len(tops) == 1 else ""


def read_folders(paths: Sequence[str], empty: Sequence[str], layout: Layout, where: str) -> Reading:
    """Records from folder names."""
    candidates = [path for path in paths if is_candidate(path)]
    others = [path for path in paths if not is_candidate(path)]
    if not candidates:
        kinds = Counter(PurePosixPath(path).suffix or "no suffix" for path in others)
        found = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common(5)) or "no files"
        raise DataError(
            "no images were found",
            where=where,
            found=found,
            right=f"{READ_HERE} files in class folders",
        )
    top = top_folder(candidates)
    if top and _depths(candidates, top) != {0} and not _is_lone_split(top, candidates, layout):
        findings = [
            Finding(
                Level.NOTE,
                "top-folder",
                "",
                f"everything lies in one folder '{printable(top)}', read as the root",
            )
        ]
    else:
        top, findings = "", []
    inner = {path: path[len(top) + 1 :] if top else path for path in candidates}
    by_split = layout == "split" or (layout == "auto" and _looks_split(inner.values()))
    if layout == "auto" and not by_split:
        _refuse_two_readings(inner.values(), where)
    level = 1 if by_split else 0
    loose = [path for path, name in inner.items() if name.count("/") <= level]
    records = [
        Record(path, name.split("/")[level], split=_split(name) if by_split else None)
        for path, name in inner.items()
        if name.count("/") > level
    ]
    findings += _remark_others(loose, others, len(paths))
    _check_classes(records, empty, top, level, where)
    _refuse_masks(records, where)
    classes = len({record.label for record in records})
    sentence = (
        f"one folder per split, then per class ({counted(classes, 'class')})"
        if by_split
        else f"one folder per class ({counted(classes, 'class')})"
    )
    return Reading(sentence, tuple(records), tuple(findings))


def _depths(paths: Sequence[str], top: str) -> set[int]:
    return {path[len(top) + 1 :].count("/") for path in paths}


def _is_lone_split(top: str, paths: Sequence[str], layout: Layout) -> bool:
    """Whether the one folder is a split, as in a download that has `train` only, and not the root."""
    inner = [path[len(top) + 1 :] for path in paths]
    return layout != "class" and top.lower() in SPLIT_NAMES and not _looks_split(inner)


def _looks_split(names: Iterable[str]) -> bool:
    tops = {name.split("/", 1)[0].lower() for name in names if "/" in name}
    return bool(tops) and tops <= SPLIT_NAMES.keys()


def _split(name: str) -> str:
    first = name.split("/", 1)[0]
    return SPLIT_NAMES.get(first.lower(), first)


def _refuse_two_readings(names: Iterable[str], where: str) -> None:
    nested = [name for name in names if name.count("/") > 1]
    if not nested:
        return
    first, second = nested[0].split("/")[:2]
    raise DataError(
        "the folder can be read in two ways",
        where=where,
        found=f"{counted(len(nested), 'image')} deeper than a class folder, for instance {printable(nested[0])}",
        right=f"--layout class (class '{printable(first)}', folders below ignored) "
        f"or --layout split (split '{printable(first)}', class '{printable(second)}')",
    )


def _remark_others(loose: Sequence[str], others: Sequence[str], total: int) -> list[Finding]:
    findings = []
    if loose:
        findings.append(
            Finding(
                Level.WARN,
                "loose",
                "",
                f"{counted(len(loose), 'image')} outside the class folders, left out: {name_some(loose)}",
            )
        )
    if others:
        level = Level.WARN if len(others) > MANY_OTHERS * total else Level.NOTE
        findings.append(
            Finding(
                level,
                "not-images",
                "",
                f"{counted(len(others), 'file')} other than images: {name_some(others)}",
            )
        )
    return findings


def _check_classes(records: Sequence[Record], empty: Sequence[str], top: str, level: int, where: str) -> None:
    labels = {record.label for record in records}
    below = [
        folder[len(top) + 1 :] if top else folder
        for folder in empty
        if not top or folder.startswith(f"{top}/")
    ]
    hollow = sorted({f.split("/")[level] for f in below if f.count("/") == level} - labels - {""})
    if hollow:
        raise DataError(
            f"class '{printable(hollow[0])}' holds no image",
            where=where,
            found=f"empty class folders: {name_some(hollow)}" if len(hollow) > 1 else "an empty folder",
            right="remove the folder, or leave it out with --exclude",
        )
    check_class_names(labels, where)


def check_class_names(labels: set[str], where: str) -> None:
    """Two classes at least, and no two that a person would read as the same."""
    if len(labels) < 2:
        raise DataError(
            "there is nothing to tell apart",
            where=where,
            found=f"one class: {printable(next(iter(labels)))}" if labels else "no class",
            right="at least two classes, one folder each",
        )
    same = defaultdict(list)
    for label in sorted(labels):
        same[label.strip().casefold()].append(label)
    for names in same.values():
        if len(names) > 1:
            raise DataError(
                "two classes have the same name but for case or blanks",
                where=where,
                found=" and ".join(f"'{printable(name)}'" for name in names),
                right="one name per class",
            )


def _refuse_masks(records: Sequence[Record], where: str) -> None:
    stems = {str(PurePosixPath(record.path).with_suffix("")) for record in records}
    for mark in MASK_MARKS:
        masks = [stem for stem in stems if stem.endswith(mark) and stem.removesuffix(mark) in stems]
        if len(masks) > PAIRED_MASKS * (len(stems) - len(masks)):
            raise DataError(
                "the folder seems to hold segmentation masks beside the images",
                where=where,
                found=f"{counted(len(masks), 'pair')} such as {printable(sorted(masks)[0])}",
                right=f"--exclude '*{mark}.*'",
            )
