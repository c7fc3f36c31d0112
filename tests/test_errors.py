import pickle

import pytest

from abomed.errors import (
    AbomedError,
    CheckpointError,
    ConfigError,
    DataError,
    MissingExtraError,
    NumericalError,
)
from abomed.types import counted, printable


def test_message_answers_four_questions() -> None:
    error = DataError("it is torn", where="a.png", found="half", right="a whole one")
    assert str(error) == "it is torn\n  where: a.png\n  found: half\n  right: a whole one"


@pytest.mark.parametrize(
    ("kind", "code"),
    [(AbomedError, 1), (ConfigError, 2), (DataError, 3), (CheckpointError, 3), (NumericalError, 4)],
)
def test_exit_codes(kind: type[AbomedError], code: int) -> None:
    assert kind("x").exit_code == code


def test_errors_survive_the_way_from_a_worker_process() -> None:
    error = DataError("it is torn", where="a.png", found="half", right="a whole one")
    for sent in (error, MissingExtraError("charts", "report", "matplotlib")):
        received = pickle.loads(pickle.dumps(sent))
        assert type(received) is type(sent)
        assert str(received) == str(sent)


def test_printable_shows_what_a_terminal_would_obey() -> None:
    assert printable("scan\u202egnp\n\x1b[31m\udcf6") == "scan\\u202egnp\\n\\x1b[31m\\udcf6"
    assert printable("Präparat 12") == "Präparat 12"


def test_counted() -> None:
    assert [counted(1, "image"), counted(1820, "image"), counted(3, "class"), counted(2, "entry", "entries")] == [
        "1 image", "1,820 images", "3 classes", "2 entries",
    ]  # fmt: skip
