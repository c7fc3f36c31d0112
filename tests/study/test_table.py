"""Places of tables: what is printed of seeds and tasks, when a row is called the best, how often that is luck."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abomed.config.study import TableSpec
from abomed.study.claims import best_rows, compare_rows
from abomed.study.grid import load_study
from abomed.study.paper import Published
from abomed.study.places import Place, Sample, Table
from abomed.study.render import lay_out, render, to_latex, to_markdown, write_place
from abomed.study.store import StudyFolder
from abomed.study.table import fill_tables
from tests.study.made_up import made_up_study

TASKS = 40


def _sample(
    seed: int, tasks: Sequence[float] | np.ndarray, *, episodes: str = "e", fixed: bool = False
) -> Sample:
    values = torch.tensor(np.asarray(tasks), dtype=torch.float64)
    return Sample(seed, (), float(values.mean()), values, episodes, fixed)


def _table(places: Sequence[Place], **spec: Any) -> Table:
    rows, columns = (dict.fromkeys(getattr(place, name) for place in places) for name in ("row", "column"))
    settings = TableSpec(title="A table", columns=("data",), **spec)
    named = {(place.row, place.column): place for place in places}
    return Table(made_up_study(), settings, tuple(rows), tuple(columns), named, ("A remark.",))


def _rivals(
    random: np.random.Generator,
    *,
    rows: int = 4,
    seeds: int = 5,
    columns: int = 2,
    gain: float = 0.0,
    luck: float = 0.0,
) -> Table:
    """Methods on equal tasks of very different difficulty; `luck` is what a training's seed adds for all tasks."""
    places = []
    for column in range(columns):
        difficulty = random.normal(0.7, 0.1, TASKS)
        for row in range(rows):
            values = difficulty + gain * (row == 0) + random.normal(0, 0.05, (seeds, TASKS))
            values += random.normal(0, luck, (seeds, 1))
            samples = [_sample(seed, tasks, episodes=f"e{column}") for seed, tasks in enumerate(values)]
            places.append(Place((f"m{row}",), (f"d{column}",), samples))
    return _table(places)


def _place(*samples: Sample, **fields: Any) -> Place:
    return Place(("ours",), ("d0",), list(samples), **fields)


def test_below_five_seeds_the_range_is_printed_and_from_five_on_an_interval() -> None:
    random = np.random.default_rng(0)
    tasks = random.uniform(0.6, 0.9, (6, TASKS))
    texts = {}
    for count in (1, 2, 4, 5, 6):
        place = _place(*(_sample(seed, tasks[seed]) for seed in range(count)))
        texts[count] = write_place(place, _table([place]))
    means = 100 * tasks.mean(1)
    assert texts[1].endswith("(1 seed)")
    assert texts[2].endswith(f"({means[:2].min():.1f} to {means[:2].max():.1f}, 2 seeds)")
    assert texts[4].endswith(f"({means[:4].min():.1f} to {means[:4].max():.1f}, 4 seeds)")
    half = 2.7764451 * means[:5].std(ddof=1) / 5**0.5  # Student's 97.5 % with 4 degrees of freedom
    assert texts[5].endswith(f"(± {half:.2f} over 5 seeds)")
    over_tasks = 1.959964 * 100 * tasks[:5].mean(0).std(ddof=1) / TASKS**0.5
    assert texts[5].startswith(f"{means[:5].mean():.2f} ± {over_tasks:.2f} ")
    assert "6 seeds" in texts[6]


def test_what_is_missing_says_so() -> None:
    table = _table([_place()])
    assert write_place(None, table) == ""
    assert write_place(_place(), table) == ""
    assert write_place(_place(open_cells=2, open_seconds=600.0), table) == "open, about 10 min"
    assert write_place(_place(failed=["it broke"]), table) == "failed: it broke"
    assert write_place(_place(impossible="2 patients"), table) == "not possible: 2 patients"
    one = _place(_sample(0, [0.5, 0.7]), open_cells=2)
    assert write_place(one, table).endswith("(1 seed), 2 open")


def test_tasks_of_different_lists_have_no_common_interval() -> None:
    place = _place(_sample(0, [0.5, 0.7]), _sample(1, [0.5, 0.7], episodes="f"))
    assert place.over_tasks is None
    assert write_place(place, _table([place])) == "60.00 (60.0 to 60.0, 2 seeds)"


def test_a_clear_winner_of_five_seeds_is_bold_and_of_four_is_not() -> None:
    for seeds, wanted in ((5, {("d0",): ("m0",), ("d1",): ("m0",)}), (4, {})):
        table = _rivals(np.random.default_rng(1), seeds=seeds, gain=0.2)
        assert best_rows(table, compare_rows(table)) == wanted


def test_nothing_is_bold_beside_an_open_or_failed_row() -> None:
    for fields in ({"open_cells": 1}, {"failed": ["it broke"]}):
        table = _rivals(np.random.default_rng(1), gain=0.2, columns=1)
        extra = Place(("m9",), ("d0",), **fields)  # type: ignore[arg-type]
        table = _table([*table.places.values(), extra])
        assert best_rows(table, compare_rows(table)) == {}


def test_better_weights_by_luck_of_their_seeds_are_no_better_method() -> None:
    """Trainings differ by far more than the tasks could explain, so over tasks everything is beyond luck."""
    random = np.random.default_rng(2)
    seeds = {"m0": (0.1, -0.05, 0.08, -0.06, 0.02), "m1": (0.0,) * 5}
    places = [
        Place(
            (name,),
            ("d0",),
            [_sample(seed, random.normal(0.7 + luck, 0.02, TASKS)) for seed, luck in enumerate(own)],
        )
        for name, own in seeds.items()
    ]
    table = _table(places)
    (claim,) = compare_rows(table)
    assert claim.tasks is not None
    assert claim.seeds is not None
    assert claim.tasks.is_beyond_luck
    assert not claim.seeds.is_beyond_luck
    assert best_rows(table, [claim]) == {}


def test_a_row_without_training_is_compared_as_it_stands() -> None:
    random = np.random.default_rng(3)
    trained = [_sample(seed, random.normal(0.8, 0.02, TASKS)) for seed in range(5)]
    size = _sample(0, random.normal(0.6, 0.02, TASKS), fixed=True)
    table = _table([_place(*trained), Place(("size",), ("d0",), [size])])
    assert best_rows(table, compare_rows(table)) == {("d0",): ("ours",)}


def _count_false_claims(unit: str, luck: float, draws: int) -> tuple[float, float]:
    """In how many of 1,000 tables of equal methods any pair differs, and any row is bold."""
    random = np.random.default_rng(4)
    any_claim, any_bold = [], []
    for repeat in range(1000):
        table = _rivals(random, rows=3, luck=luck)
        claims = compare_rows(table, draws=draws, seed=repeat)
        told = [getattr(claim, unit) for claim in claims]
        any_claim.append(any(each.is_beyond_luck for each in told if each is not None))
        any_bold.append(bool(best_rows(table, claims)))
    return float(np.mean(any_claim)), float(np.mean(any_bold))


def test_equal_methods_differ_over_tasks_in_five_of_a_hundred_tables() -> None:
    """Three equal methods on two data sets, six pairs: the binomial standard error of 5 % is 0.7 points."""
    claims, bold = _count_false_claims("tasks", luck=0.0, draws=500)
    assert 0.03 <= claims <= 0.07
    assert bold <= 0.05


def test_equal_methods_differ_over_seeds_in_five_of_a_hundred_tables() -> None:
    """Also where every training has luck of its own, which an interval over tasks cannot know."""
    claims, bold = _count_false_claims("seeds", luck=0.05, draws=100)
    assert 0.03 <= claims <= 0.07
    assert bold <= 0.07


def _both() -> Table:
    random = np.random.default_rng(5)
    table = _rivals(random, rows=2, columns=2, gain=0.3)
    for place in table.places.values():
        place.paper = Published(71.5, 0.4) if place.column == ("d0",) else None
    return table


def test_the_papers_line_stands_below_ours() -> None:
    lines = lay_out(_both()).lines
    assert [line.name for line in lines] == [("m0",), ("m0, the paper",), ("m1",), ("m1, the paper",)]
    assert lines[1].texts == ("71.50 ± 0.40", "")
    assert lines[0].bold == (True, True)
    assert not any(line.is_paper and any(line.bold) for line in lines)


def test_markdown_and_latex_and_csv_hold_the_same_table() -> None:
    table = _both()
    sheet = lay_out(table)
    markdown, latex = to_markdown(sheet), to_latex(sheet)
    assert f"| m0 | **{sheet.lines[0].texts[0]}** |" in markdown
    assert "| *m0, the paper* | 71.50 ± 0.40 |" in markdown
    assert "points above m1" in markdown
    assert markdown.count("\n| ") == 6
    assert "\\toprule" in latex
    assert "\\bottomrule" in latex
    first = sheet.lines[0].texts[0].replace("±", "$\\pm$")
    assert f"m0 & \\textbf{{{first}}}" in latex
    assert latex.count("\\\\") == 5
    rows = list(csv.DictReader(io.StringIO(render([table], "csv"))))
    assert [(row["row"], row["column"], row["best"]) for row in rows[:2]] == [
        ("m0", "d0", "1"),
        ("m1", "d0", "0"),
    ]
    assert float(rows[0]["mean"]) == table.places[("m0",), ("d0",)].mean
    assert rows[0]["paper"] == "71.5"
    assert rows[0]["seeds_method"] == "student"


def test_latex_has_no_letter_that_it_would_read_as_a_command() -> None:
    place = _place(_sample(0, [0.5, 0.7]))
    place.row = ("50 % & more_of {it} #1 $x$ ^ ~ \\",)
    text = to_latex(lay_out(_table([place])))
    body = text[text.index("\\midrule") + 8 : text.index("\\bottomrule")]
    assert "50 \\% \\& more\\_of \\{it\\} \\#1 \\$x\\$" in body


def test_every_table_of_the_paper_prints_with_nothing_computed(tmp_path: Path) -> None:
    counts = {"main": 105, "time": 90, "cross-domain": 36, "backbones": 45, "augmentation": 45}
    for name, wanted in counts.items():
        tables = fill_tables(load_study(name), StudyFolder(tmp_path))
        places = [place for table in tables for place in table.places.values()]
        assert sum(place.paper is not None for place in places) == wanted
        text = render(tables, "markdown")
        assert "open, about" in text
        assert "estimated from arithmetic, on one H200" in text
    main = fill_tables(load_study("main"), StudyFolder(tmp_path))[0]
    assert main.columns[:5] == tuple(("pap-smear", shots) for shots in (1, 3, 5, 7, 10))
    assert main.place(("MAML",), ("isic2018", 7)) is not None
