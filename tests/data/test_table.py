"""Tables with the faults that spreadsheets bring."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.data.records import Record
from abomed.data.table import assign_groups, is_label_table, name_some, read_groups, read_labels
from abomed.errors import DataError

PATHS = ["a/1.png", "a/2.png", "b/3.png"]
SOUND = "path,label\na/1.png,x\na/2.png,x\nb/3.png,y\n"


def refusal_of(text: str | bytes) -> str:
    with pytest.raises(DataError) as caught:
        read_labels(text if isinstance(text, bytes) else text.encode(), PATHS, "labels.csv")
    assert caught.value.where == "labels.csv"
    return f"{caught.value.what}: {caught.value.found}"


@pytest.mark.parametrize(
    "text",
    [
        SOUND,
        "\ufeff" + SOUND,
        SOUND.replace(",", ";"),
        SOUND.replace(",", "\t"),
        SOUND.replace("\n", "\r\n"),
        SOUND.replace("\n", "\r"),
        SOUND.replace("a/", "a\\"),
        SOUND.replace("a/", "./a/"),
        SOUND.replace("path,label", " Filename , LABEL "),
        SOUND.replace("path,label", "image,label"),
        SOUND.replace("a/1.png,x", '"a/1.png","x"'),
        SOUND + ",\n\n , \n",  # what is left of deleted rows
        SOUND + "a/1.png,x\n",
    ],
)
def test_spellings_of_one_table(text: str) -> None:
    reading = read_labels(text.encode(), PATHS, "labels.csv")
    assert reading.records == (Record("a/1.png", "x"), Record("a/2.png", "x"), Record("b/3.png", "y"))
    assert reading.layout == "table labels.csv (2 classes)"
    assert reading.source == "table"


def test_group_and_split() -> None:
    text = "split,group,label,path\ntrain,p1,x,a/1.png\n,p1,x,a/2.png\ntest,p2,y,b/3.png\n"
    reading = read_labels(text.encode(), PATHS, "labels.csv")
    assert reading.records == (
        Record("a/1.png", "x", "p1", "train"),
        Record("a/2.png", "x", "p1", None),
        Record("b/3.png", "y", "p2", "test"),
    )


def test_only_images_are_missed_by_a_table() -> None:
    text = "path,label\na/1.png,x\nb/3.png,y\n"
    reading = read_labels(text.encode(), [*PATHS, "readme.txt", "labels.csv"], "labels.csv")
    assert [finding.text for finding in reading.findings] == ["1 file not named by the table: a/2.png"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column 'path': columns none"),
        ("path\na/1.png\n", "no column 'label'"),
        ("path,label,Label\na/1.png,x,y\n", "two columns 'label'"),
        ("path,file,label\na/1.png,a/1.png,y\n", "two columns 'path'"),
        ("path,label\n", "the table is empty"),
        ("path,label\na/1.png,x,z\n", "number of columns: 1 row, the first in line 2"),
        ("path,label\na/9.png,x\nb/3.png,y\n", "not there: a/9.png"),
        ("path,label\na/1.png,x\na/1.png,y\n", "two labels: a/1.png"),
        ("path,label\na/1.png,\nb/3.png,y\n", "without a label: a/1.png"),
        ("path,label,group\na/1.png,x,1\na/1.png,x,2\nb/3.png,y,3\n", "two groups or splits: a/1.png"),
        ("path,label,split\na/1.png,x,train\na/1.png,x,test\n", "two groups or splits: a/1.png"),
        ("path,label,group\na/1.png,x,1\nb/3.png,y,\n", "1 of 2 images without a group: b/3.png"),
        ('path,label\n"a/1.png,x\n' + "y" * 140_000, "cannot be read as CSV: field larger than"),
        (SOUND.replace("y", "ä").encode("latin-1"), "not UTF-8 text: byte 39"),
        (SOUND.encode("utf-16"), "not UTF-8 text: byte 0"),
    ],
)
def test_faults_are_named(text: str | bytes, words: str) -> None:
    assert words in refusal_of(text)


def test_all_faults_are_named_at_once() -> None:
    said = refusal_of("path,label\na/9.png,x\na/1.png,x\na/1.png,y\nb/3.png,\n")
    assert said.count(";") == 2


names = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20).map(str.strip)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        names.filter(lambda n: n and "\\" not in n and not n.startswith("./")),
        st.tuples(names, names).filter(all),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(",;\t"),
)
def test_any_table_that_the_csv_module_writes_is_read_back(
    rows: dict[str, tuple[str, str]], separator: str
) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator)
    writer.writerow(["path", "label", "group"])
    writer.writerows([path, *facts] for path, facts in rows.items())
    reading = read_labels(buffer.getvalue().encode(), list(rows), "labels.csv")
    assert {r.path: (r.label, r.group) for r in reading.records} == rows


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        (b"path,label", True),
        (b"\xef\xbb\xbfImage;Label;x", True),
        (b"path,group", False),
        (b"image,MEL,NV", False),
        (b"", False),
        (b"\xff\xfe", False),
        (b"label", False),
    ],
)
def test_which_tables_hold_labels(first: bytes, answer: bool) -> None:
    assert is_label_table(first + b"\nx,y\n") is answer


def test_groups() -> None:
    assert read_groups(b"path,group\na/1.png,p1\na/1.png,p1\na/2.png,p2\n", "g") == {
        "a/1.png": "p1",
        "a/2.png": "p2",
    }
    with pytest.raises(DataError, match="two groups"):
        read_groups(b"path,group\na/1.png,p1\na/1.png,p2\n", "g")


def test_a_group_for_every_image_or_none() -> None:
    records = [Record("a/1.png", "x", split="train", size=(3, 4)), Record("a/2.png", "x")]
    grouped = assign_groups(records, {"a/1.png": "p", "a/2.png": "q", "else": "r"}, "g")
    assert grouped == (Record("a/1.png", "x", "p", "train", (3, 4)), Record("a/2.png", "x", "q"))
    with pytest.raises(DataError, match="missing for some") as caught:
        assign_groups(records, {"a/1.png": "p", "a/2.png": ""}, "g")
    assert caught.value.found == "1 of 2 images without a group: a/2.png"


def test_name_some() -> None:
    assert name_some(["a"]) == "a"
    assert name_some("abc") == "a, b, c"
    assert name_some(["\n"] * 1004) == "\\n, \\n, \\n and 1,001 more"
