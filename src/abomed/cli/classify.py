"""`abomed classify`: answers for a folder of images from a few labelled ones."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from abomed.cli import console
from abomed.config.answers import AnswerSettings
from abomed.config.classify import ClassifySettings
from abomed.config.data import DecodeSettings, ReadSettings
from abomed.errors import ConfigError, DataError
from abomed.types import counted, printable

if TYPE_CHECKING:
    from abomed.classify.answers import Answer, Refused
    from abomed.classify.queries import Queries
    from abomed.classify.results import Results
    from abomed.classify.support import Support

Flat = Parameter(name="*")
_CLASSIFY, _ANSWERS = ClassifySettings(), AnswerSettings()
_READ, _DECODE = ReadSettings(), DecodeSettings()


def classify(
    *,
    support: str,
    query: Annotated[list[Path], Parameter(consume_multiple=True)],
    out: Path,
    report: Path | None = None,
    save: Path | None = None,
    settings: Annotated[ClassifySettings, Flat] = _CLASSIFY,
    answers: Annotated[AnswerSettings, Flat] = _ANSWERS,
    read: Annotated[ReadSettings, Flat] = _READ,
    decode: Annotated[DecodeSettings, Flat] = _DECODE,
    json: bool = False,
) -> None:
    """Answer for a folder of images from a few labelled ones. Research use only: no answer is a diagnosis.

    First the labelled images are checked and the accuracy to expect is told; then every query is answered. Files
    that cannot be read are named, counted and left out.

    Parameters
    ----------
    support
        The labelled images: a folder with one folder per class, a .zip of one, or a .csv (path,label[,group]).
    query
        What to answer: one folder, .zip or .csv, or any number of image files. Images in folders with the name of a
        class are scored, too.
    out
        The table of answers to write, FILE.csv.
    report
        Write a page to read in any browser, FILE.html, with pictures, heat maps and warnings.
    save
        Keep the fitted classifier in a new folder, for `abomed export` or `FewShotClassifier.load`.
    json
        Print one JSON text instead of sentences.
    """
    from abomed.classify.fitted import check_folder
    from abomed.classify.queries import read_queries
    from abomed.classify.results import conclude, to_json
    from abomed.classify.support import open_support

    _check_outputs(out, report, [Path(support), *query, *([Path(read.groups)] if read.groups else [])])
    if save is not None:
        check_folder(save)
    with ExitStack() as stack:
        with console.progress("labelled images") as on_progress:
            labelled = stack.enter_context(
                open_support(support, settings, read, decode, answers, on_progress)
            )
        queries = read_queries(query, labelled.class_names, read, labelled.pack.header.source)
        if not json:
            _tell_support(labelled)
        given, refused = _answer(labelled, queries, out, report is not None, decode, answers)
        results = conclude(labelled, queries, given, refused)
        if report is not None:
            from abomed.report.classify_page import write_answers_page

            write_answers_page(report, labelled, queries, results, settings)
        if save is not None:
            labelled.classifier.save(save)
        if json:
            findings = [console.finding_to_json(f) for f in (*labelled.findings, *results.findings)]
            body = to_json(labelled, results) | {"findings": findings, "out": str(out)}
            places = {"report": report, "save": save}
            told = {name: None if path is None else str(path) for name, path in places.items()}
            console.print_json(body | told)
        else:
            _tell_results(labelled, results, out, report, save)


def _check_outputs(out: Path, report: Path | None, inputs: Sequence[Path]) -> None:
    """What would fail after the work, or destroy what was given, is refused before it."""
    from abomed.data.durable import check_space

    given = {path.absolute() for path in inputs}
    given |= {path / "groups.csv" for path in given if path.is_dir()}
    read = {path.resolve() for path in given}
    for path, suffix in ((out, ".csv"), (report, ".html")):
        if path is None:
            continue
        if path.suffix.lower() != suffix or path.is_dir():
            raise ConfigError(
                f"the output cannot be '{printable(str(path))}'",
                found="a folder" if path.is_dir() else f"the suffix '{printable(path.suffix)}'",
                right=f"a file name that ends in {suffix}",
            )
        if path.resolve() in read:
            raise ConfigError(
                "the answers would overwrite what they are made from",
                where=printable(str(path)),
                right="another file for the output",
            )
        check_space(path.absolute().parent, 2**20)


def _answer(
    support: "Support",
    queries: "Queries",
    out: Path,
    page: bool,
    decode: DecodeSettings,
    settings: AnswerSettings,
) -> "tuple[list[Answer], list[Refused]]":
    from abomed.classify.answer_table import write_table
    from abomed.classify.answers import Extras, Refused, answer_all

    extras = Extras()
    if page:
        from abomed.report.classify_page import extras_for

        extras = extras_for(len(queries.records))
    given: list[Answer] = []
    refused: list[Refused] = []
    with (
        write_table(out, support.class_names, len(queries.records)) as table,
        console.progress("images") as on_progress,
    ):
        for item in answer_all(support, queries, decode, settings, extras, on_progress):
            if isinstance(item, Refused):
                refused.append(item)
            else:
                table.add(item)
                given.append(item)
        _check_refused(refused, len(given), strict=settings.strict)
    return given, refused


def _check_refused(refused: "list[Refused]", given: int, *, strict: bool) -> None:
    if not refused or (given and not strict):
        return
    named = "; ".join(f"{printable(item.path)}: {item.refusal}" for item in refused[:3])
    more = f" and {len(refused) - 3:,} more" if len(refused) > 3 else ""
    raise DataError(
        "some files cannot be used, and --strict was given" if given else "no image could be read",
        found=f"{len(refused):,} refused: {named}{more}",
        right="mend or remove them" + (", or leave out --strict" if given else ""),
    )


def _tell_support(support: "Support") -> None:
    """What is known before a query is seen."""
    names = ", ".join(f"{printable(name)} {count}" for name, count in support.counts().items())
    models = " + ".join(model.name for model in support.models)
    console.say(f"{counted(len(support.pack), 'labelled image')} ({names}), answered with {models}")
    console.print_findings(support.findings)
    for sentence in support.doubt.sentences:
        console.say(sentence)


def _tell_results(
    support: "Support", results: "Results", out: Path, report: Path | None, save: Path | None
) -> None:
    console.print_findings(results.findings)
    given = Counter(support.class_names[answer.way] for answer in results.answers)
    named = ", ".join(f"{printable(name)} {given[name]:,}" for name in support.class_names)
    left_out = f", {len(results.refused):,} could not be read" if results.refused else ""
    console.say(f"{counted(len(results.answers), 'image')} answered ({named}){left_out}: {out}")
    if results.scores is not None:
        console.say(results.scores.sentence())
    if report is not None:
        console.say(f"the page: {report}")
    if save is not None:
        console.say(f"the fitted classifier: {save}")
    console.say("Research use only: no answer is a diagnosis.")
