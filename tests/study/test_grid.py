"""Studies as data: how many cells they have, and what is refused."""

import re
from collections import Counter
from pathlib import Path

import pytest

from abomed.config.study import EvaluationSpec
from abomed.errors import ConfigError
from abomed.study.address import resolve, spec_key
from abomed.study.grid import STUDIES, cells_of, load_study, parse_study, select_cells
from tests.study.made_up import TOML, made_up_cells


@pytest.mark.parametrize("name", STUDIES)
def test_every_shipped_study_has_valid_cells_and_tables(name: str) -> None:
    study = load_study(name)
    cells = cells_of(study)
    assert len(cells) == len({cell.model_dump_json() for cell in cells}) > 0
    for cell in {spec_key(cell): cell for cell in cells}.values():
        if name != "hyperparameters":  # each of its 1,215 is resolved below
            assert resolve(cell).train.seed == cell.seed
    names = {each.name for cell in cells for each in cell.evaluations}
    for table in study.tables:
        assert set(table.evaluation) <= names


def test_the_papers_grid_is_1215_trainings_of_45_tests_each() -> None:
    cells = cells_of(load_study("hyperparameters"))
    settings = set()
    for cell in cells:
        config = resolve(cell)
        inner = config.inner
        assert inner.steps == "paper"
        settings.add((config.outer.lr_outer, inner.lr_z, inner.lr_y, inner.penalty, inner.inner_steps))
    assert len(cells) == len(settings) == len({spec_key(cell) for cell in cells}) == 1215
    etas = Counter(eta for eta, *_ in settings)
    assert etas == dict.fromkeys([0.001, 0.01, 0.1, 0.5, 1, 5, 10, 20, 100], 135)
    for cell in cells[::200]:
        tests = {(e.inner["adapt_steps"], e.inner["lr_adapt"], e.inner["momentum"]) for e in cell.evaluations}
        assert len(cell.evaluations) == len(tests) == 45
        assert {steps for steps, _, _ in tests} == {10, 20, 30, 40, 50}
        assert {rate for _, rate, _ in tests} == {0.001, 0.005, 0.01}
        assert {momentum for _, _, momentum in tests} == {0.5, 0.7, 0.9}


def test_the_main_study_spans_the_papers_table() -> None:
    cells = cells_of(load_study("main"))
    ours = {(cell.data, cell.shots) for cell in cells if cell.label == "ABO-Med"}
    assert ours == {(d, s) for d in ("pap-smear", "isic2018", "breakhis400") for s in (1, 3, 5, 7, 10)}
    seeds = Counter((cell.label, cell.data, cell.shots) for cell in cells)
    assert seeds["ABO-Med", "pap-smear", 5] == 5
    assert seeds["ABO-Med", "pap-smear", 3] == 3
    assert seeds["MAML", "pap-smear", 5] == 2
    counts = {cell.data: cell.iterations for cell in cells if cell.label == "ABO-Med"}
    assert counts == {"pap-smear": 200, "isic2018": 400, "breakhis400": 50}
    paper = next(cell for cell in cells if cell.label == "ABO-Med, the paper's settings")
    assert (resolve(paper).train.iterations, resolve(paper).outer.lr_outer) == (5000, 1.0)


def test_rivals_train_by_their_own_presets() -> None:
    cells = {cell.method: resolve(cell) for cell in cells_of(load_study("main"))}
    assert cells["maml"].train.iterations == 5000
    assert cells["reptile"].outer.optimiser == "sgd"
    assert cells["abo-med"].train.task_batch == 32


def test_triples_are_every_split_of_the_classes() -> None:
    cells = cells_of(load_study("class-triples"))
    splits = Counter(cell.data for cell in cells if cell.label == "ABO-Med")
    assert splits == {"pap-smear": 35, "isic2018": 35, "breakhis400": 56}
    assert len({(cell.data, cell.split) for cell in cells}) == 35 + 35 + 56


def test_cells_are_chosen_by_their_fields() -> None:
    cells = cells_of(load_study("main"))
    chosen = select_cells(cells, {"data": ["pap-smear"], "shots": ["1", "5"], "label": ["ABO-Med"]})
    assert {(cell.data, cell.shots) for cell in chosen} == {("pap-smear", 1), ("pap-smear", 5)}
    with pytest.raises(ConfigError, match="no field 'shot'"):
        select_cells(cells, {"shot": ["1"]})
    with pytest.raises(ConfigError, match="did you mean 'pap-smear'"):
        select_cells(cells, {"data": ["pap-smaer"]})


def test_seeds_can_be_told_for_all() -> None:
    cells = cells_of(parse_study("made-up", TOML), seeds=3)
    assert Counter(cell.label for cell in cells) == {"ours": 3, "seen along the way": 3, "mean colour": 3}
    assert {cell.seed for cell in cells} == {0, 1, 2}


def test_a_label_and_the_tests_are_no_part_of_a_description() -> None:
    cell = made_up_cells(label="ours")[0]
    other = cell.model_copy(update={"label": "theirs", "evaluations": (EvaluationSpec(name="x"),)})
    assert spec_key(other) == spec_key(cell)
    assert spec_key(cell.model_copy(update={"seed": 7})) != spec_key(cell)
    assert spec_key(cell.model_copy(update={"iterations": 9})) != spec_key(cell)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 3", "the study is not valid"),
        ("title = ", "the study is not valid"),
        (TOML.replace("image_size = 16", "image_sise = 16"), "a cell of the study is not valid"),
        (TOML.replace('features = "mean colour"', ""), "need each other"),
    ],
)
def test_a_study_that_is_wrong_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cells_of(parse_study("mine", text))


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="did you mean 'patients'"):
        load_study("patient")
    with pytest.raises(ConfigError, match="the study cannot be read"):
        load_study("nowhere.toml")


def test_the_page_of_documentation_counts_right_and_its_example_is_a_study() -> None:
    text = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    told: dict[str, int] = {}
    for names, counts in re.findall(r"^\| ([a-z, -]+) \| .* \| ([\d,]+(?:, \d+)?) \|$", text, re.MULTILINE):
        both = counts.split(", ") if ", " in counts else [counts]
        told |= {
            name: int(count.replace(",", "")) for name, count in zip(names.split(", "), both, strict=True)
        }
    assert told == {name: len(cells_of(load_study(name))) for name in STUDIES}
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    cells = cells_of(parse_study("example", example))
    assert len(cells) == 2 * 2 * 5
    assert {resolve(cell).inner.penalty for cell in cells if cell.label == "MedRAug"} == {5.0}
