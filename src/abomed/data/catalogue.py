"""The named sources as tables: classes, published counts, naming rules, licences, where to download.

`abomed.data.sources` reads by these tables and `abomed.data.fetch` downloads by them.
Decisions a reader would question:

- Class names are those of the data set's own folders, spelling mistakes included ("superficiel"): the splits
  of the literature and everybody's copies use them.
- `file_name` is the rule of the official file names. Copies of these sets circulate resized and converted to
  other formats, but hardly anybody renames the files, so the rule both recognises a copy and gives the group.
- BreaKHis slide numbers carry letters (22549AB, 22549CD) that mark slides of one patient: the group is the
  number alone.
- No checksum is published by the owners of these files, as far as could be found; `fetch` records one at first
  use. Sizes are rounded and only tell a person how long to wait.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"})

Origin = Literal["folder", "file name", "table"]


@dataclass(frozen=True)
class Download:
    """One file to fetch from its owner."""

    file: str  # name on disk
    url: str
    megabytes: float
    checksum: str | None = (
        None  # "sha256:…" or "md5:…" as its owner publishes it; None: recorded at first use
    )
    remark: str = ""


@dataclass(frozen=True)
class ClassEntry:
    """One class: its canonical name, other names of its folder, and how many images were published."""

    name: str
    published: int | None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """Everything abomed knows about one public data set."""

    name: str
    title: str
    citation: str
    licence: str
    home: str
    downloads: tuple[Download, ...]
    archive: str  # the file that `fetch` leaves to read: a download itself, or what it is repacked into
    classes: tuple[ClassEntry, ...]
    published: int  # images in total
    file_name: str  # regular expression of an image's name without suffix; may name `group`, `code`, `power`
    label_origins: tuple[Origin, ...]  # where a label may come from; all that speak must agree
    group_kind: str
    aliases: tuple[str, ...] = ()
    mask_name: str | None = None  # regular expression of names (without suffix) of segmentations to leave out
    table_name: str | None = None  # regular expression of the names of tables to read, case ignored
    power: str | None = None  # the magnification this source takes out of a tree that may hold several
    any_file_name: bool = False  # accept images outside the naming rule (the rule then only recognises)
    group_note: str = ""  # what a user must know about the groups
    count_note: str = ""  # what a user must know about the published counts

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.classes)

    def class_of(self, written: str) -> str | None:
        """The canonical name of a class, however its folder or table writes it."""
        return _written_classes(self).get(_plain(written))


def _plain(name: str) -> str:
    return re.sub(r"[\s_.\-]+", "", name).lower()


@cache
def _written_classes(source: Source) -> Mapping[str, str]:
    return {
        _plain(written): entry.name for entry in source.classes for written in (entry.name, *entry.aliases)
    }


PAP_SMEAR = Source(
    name="pap-smear",
    aliases=("papsmear", "herlev", "smear2005"),
    title="Herlev Pap-smear, new database (2005)",
    citation="Jantzen, Norup, Dounias, Bjerregaard: Pap-smear benchmark data for pattern classification, NiSIS 2005",
    licence="none stated by its owners; ask before any use beyond research",
    home="https://mde-lab.aegean.gr/index.php/downloads/",
    downloads=(
        Download(
            "smear2005.zip",
            "http://mde-lab.aegean.gr/images/stories/docs/smear2005.zip",
            85.2,
            remark="served over plain HTTP; the original host (fuzzy.iau.dtu.dk) is gone",
        ),
    ),
    archive="smear2005.zip",
    classes=(
        ClassEntry("carcinoma_in_situ", 150),
        ClassEntry("light_dysplastic", 182, ("mild_dysplastic",)),
        ClassEntry("moderate_dysplastic", 146),
        ClassEntry("normal_columnar", 98),
        ClassEntry("normal_intermediate", 70),
        ClassEntry("normal_superficiel", 74, ("normal_superficial",)),
        ClassEntry("severe_dysplastic", 197),
    ),
    published=917,
    file_name=r"(?P<group>\d{9})-\d{9}-\d{3}",
    mask_name=r".+-d",
    table_name=r"index\.csv",
    label_origins=("folder",),
    group_kind="field",
    group_note="groups are the first number of each file name; what it stands for is not documented by the source"
    " and inferred here (a slide or a field of view)",
)

ISIC2018 = Source(
    name="isic2018",
    aliases=("isic", "ham10000", "isic2018-task3"),
    title="ISIC 2018, task 3, training part (HAM10000)",
    citation="Tschandl, Rosendahl, Kittler: The HAM10000 dataset, Scientific Data 5:180161, 2018;"
    " Codella et al., arXiv:1902.03368",
    licence="CC BY-NC 4.0",
    home="https://challenge.isic-archive.com/data/#2018",
    downloads=tuple(
        Download(file, f"https://isic-challenge-data.s3.amazonaws.com/2018/{file}", megabytes)
        for file, megabytes in (
            ("ISIC2018_Task3_Training_GroundTruth.zip", 0.04),
            ("ISIC2018_Task3_Training_LesionGroupings.csv", 0.4),
            ("ISIC2018_Task3_Training_Input.zip", 2_770),
        )
    ),
    archive="isic2018.zip",
    classes=(
        ClassEntry("AKIEC", 327),
        ClassEntry("BCC", 514),
        ClassEntry("BKL", 1099),
        ClassEntry("DF", 115),
        ClassEntry("MEL", 1113),
        ClassEntry("NV", 6705),
        ClassEntry("VASC", 142),
    ),
    published=10_015,
    # HAM10000 holds ISIC_0024306 to ISIC_0034320: other years of the same archive are not taken for it.
    file_name=r"ISIC_00(?:2[4-9]|3[0-4])\d{3}",
    mask_name=r".+_segmentation",
    # Dataverse serves the metadata with a suffix or without one; the challenge's validation and test tables
    # are left out, since the published counts and the splits of the literature are those of the training part.
    table_name=r"(?:ISIC2018_Task3_Training_(?:GroundTruth|LesionGroupings)|(?:HAM10000_)?metadata)"
    r"(?:\.csv|\.tab|\.tsv|\.txt)?",
    label_origins=("folder", "table"),
    group_kind="lesion",
)

_BREAKHIS_CODES = ("A", "F", "PT", "TA", "DC", "LC", "MC", "PC")
_BREAKHIS_CLASSES = (
    "adenosis",
    "fibroadenoma",
    "phyllodes_tumor",
    "tubular_adenoma",
    "ductal_carcinoma",
    "lobular_carcinoma",
    "mucinous_carcinoma",
    "papillary_carcinoma",
)
_BREAKHIS_COUNTS = {
    "40": (114, 253, 109, 149, 864, 156, 205, 145),
    "100": (113, 260, 121, 150, 903, 170, 222, 142),
    "200": (111, 264, 108, 140, 896, 163, 196, 135),
    "400": (106, 237, 115, 130, 788, 137, 169, 138),
}


def _breakhis(power: str) -> Source:
    counts = _BREAKHIS_COUNTS[power]
    return Source(
        name=f"breakhis{power}",
        aliases=(f"breakhis-{power}", f"breakhis{power}x"),
        title=f"BreaKHis, magnification {power}X",
        citation="Spanhol, Oliveira, Petitjean, Heutte: A dataset for breast cancer histopathological image"
        " classification, IEEE Trans. Biomed. Eng. 63(7), 2016",
        licence="CC BY 4.0 (as other projects state it; not found on the owners' page)",
        home="https://web.inf.ufpr.br/vri/databases/breast-cancer-histopathological-database-breakhis/",
        downloads=(
            Download(
                "BreaKHis_v1.tar.gz",
                "http://www.inf.ufpr.br/vri/databases/BreaKHis_v1.tar.gz",
                4_270,
                remark="served over plain HTTP; one file for all four magnifications",
            ),
        ),
        archive="BreaKHis_v1.zip",
        classes=tuple(
            ClassEntry(name, count, (code,))
            for name, count, code in zip(_BREAKHIS_CLASSES, counts, _BREAKHIS_CODES, strict=True)
        ),
        published=sum(counts),
        file_name=r"SOB_[BM]_(?P<code>[A-Z]+)-\d+-(?P<group>\d+)[A-Z]*-(?P<power>40|100|200|400)-\d+",
        label_origins=("folder", "file name"),
        group_kind="patient",
        power=power,
    )


BCHI = Source(
    name="bchi",
    aliases=("agios-pavlos",),
    title="Breast carcinoma histological images, Agios Pavlos Hospital (grades 1 to 3)",
    citation="Zioga et al., Zenodo 834910, 2017; Dimitropoulos et al., PLoS ONE 12(9):e0185110, 2017",
    licence="CC BY 4.0 (as others state it; check the record)",
    home="https://zenodo.org/records/834910",
    downloads=(
        Download(
            "bchi.zip",
            "https://zenodo.org/records/834910/files/Dataset.zip?download=1",
            374,
            remark="the file's name in the record is second hand: see the home page if it is not found",
        ),
    ),
    archive="bchi.zip",
    # The record and its article state 300 images of 21 patients and no count per grade that could be verified.
    # The lists of the few-shot literature hold 98, 102 and 82 of them; the 922 images that its text gives are
    # those of another set (Databiox: Bolhasani et al., 2020).
    classes=tuple(
        ClassEntry(f"grade_{number}", None, (f"grade{roman}", f"g{number}", f"g{roman}", number, roman))
        for number, roman in (("1", "i"), ("2", "ii"), ("3", "iii"))
    ),
    published=300,
    file_name=r"\d{8}|G[123]\d{3,5}[A-Z]?[a-z]",
    any_file_name=True,
    label_origins=("folder",),
    group_kind="patient",
    group_note="the images come from 21 patients, but neither folders nor file names tell which: there are no"
    " groups, and an episode may show one patient on both sides",
    count_note="no counts per grade are published; the lists of the few-shot literature hold 98, 102 and 82",
)

SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        source.name: source
        for source in (PAP_SMEAR, ISIC2018, *(_breakhis(power) for power in _BREAKHIS_COUNTS), BCHI)
    }
)
