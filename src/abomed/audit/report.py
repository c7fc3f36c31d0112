"""The audit of a pack: all parts, with their findings ranked.

Decisions a reader would question:

- Findings are ranked by level and then by the size of their effect, whichever part found them.
- What reading and decoding found is carried over. Findings with one code are told once, with their files in the
  figures, so that a thousand refused files do not hide a leak; what the audit measures itself is not told twice.
- The JSON holds no clock, machine or absolute path: the same pack and settings give the same text.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from abomed.audit.appearance import look
from abomed.audit.copies import find_equal, find_near
from abomed.audit.counts import count_classes, describe_counts
from abomed.audit.fits import describe_fits, measure_fits
from abomed.audit.groups import describe_groups
from abomed.audit.leaks import describe_leaks
from abomed.audit.section import Section, Table, Weighed, some
from abomed.audit.shortcuts import describe_shortcuts, measure_shortcuts
from abomed.config.audit import AuditSettings
from abomed.data.packed import Pack
from abomed.types import Finding, Level, counted, printable

SCHEMA = 1

_DIGITS = 6  # in JSON: beyond the sixth, sums differ between machines
_RANK = {level: rank for rank, level in enumerate(Level)}
# What reading finds and the audit finds again, with figures: its own code, and the audit's.
_MEASURED_ANEW = {
    "duplicate": "duplicate",
    "duplicate-across-classes": "duplicate-across-classes",
    "one-group": "few-groups",
}


@dataclass(frozen=True)
class Audit:
    """What a user should know about a pack before trusting a result on it."""

    source: str
    images: int
    class_names: tuple[str, ...]
    sections: tuple[Section, ...]
    ranked: tuple[Weighed, ...]  # the most serious first
    settings: AuditSettings
    columns_sha256: str  # of labels, groups, sizes and sources: names what was audited

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(each.finding for each in self.ranked)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables in the order of the sections; all cells are printable text."""
        return tuple(table for section in self.sections for table in section.tables)

    @property
    def summary(self) -> Table:
        """The findings as a table."""
        rows = tuple((f.level.value, f.code, printable(f.where), f.text, f.advice) for f in self.findings)
        title = f"{counted(len(rows), 'finding')}" if rows else "no findings"
        return Table(title, ("level", "code", "where", "found", "what to do"), rows)

    def to_json(self) -> dict[str, object]:
        """Plain dicts, lists, strings, numbers; the same for the same pack, settings and version."""
        body = {
            "schema_version": SCHEMA,
            "source": self.source,
            "images": self.images,
            "class_names": list(self.class_names),
            "columns_sha256": self.columns_sha256,
            "settings": self.settings.model_dump(mode="json"),
            **{section.name: dict(section.figures) for section in self.sections},
            "findings": [
                {
                    "level": each.finding.level.value,
                    "code": each.finding.code,
                    "where": each.finding.where,
                    "text": each.finding.text,
                    "advice": each.finding.advice,
                    "weight": each.weight,
                    "data": dict(each.finding.data),
                }
                for each in self.ranked
            ],
        }
        plain = _plain(body)
        assert isinstance(plain, dict)
        return plain


def audit(pack: Pack, settings: AuditSettings | None = None) -> Audit:
    """Examine `pack`: counts, copies, groups, shortcuts, tasks that fit."""
    settings = settings or AuditSettings()
    appearance = look(pack)
    counts = count_classes(pack, appearance.grey)
    near = find_near(
        appearance.thumbnails,
        appearance.first_copy,
        bits=settings.near_bits,
        correlation=settings.near_correlation,
        limit=settings.near_pairs,
    )
    sections = (
        describe_counts(pack, counts),
        describe_leaks(pack, find_equal(appearance.first_copy), near, settings),
        describe_groups(pack, counts, settings),
        describe_shortcuts(pack, measure_shortcuts(pack, appearance, settings), settings),
        describe_fits(pack, measure_fits(pack, settings), settings),
    )
    found = [finding for section in sections for finding in section.findings]
    carried = carry_over(pack.findings, {each.finding.code for each in found}, len(pack))
    return Audit(
        source=pack.header.source,
        images=len(pack),
        class_names=pack.class_names,
        sections=(*sections, _describe_refused(pack)),
        ranked=rank([*carried, *found]),
        settings=settings,
        columns_sha256=pack.header.columns_sha256,
    )


def rank(findings: Sequence[Weighed]) -> tuple[Weighed, ...]:
    """The most serious level first, within it the largest effect; ties by code and place."""
    return tuple(
        sorted(
            findings,
            key=lambda each: (
                _RANK[each.finding.level], -each.weight, each.finding.code, each.finding.where,
            ),
        )
    )  # fmt: skip


def carry_over(findings: Sequence[Finding], measured: set[str], images: int) -> list[Weighed]:
    """The findings of reading and decoding, those with equal level and code told once."""
    alike: dict[tuple[Level, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        if _MEASURED_ANEW.get(finding.code) not in measured:
            alike[finding.level, finding.code].append(finding)
    carried = []
    for (level, code), same in alike.items():
        weight = min(1.0, len(same) / max(images, 1)) if any(f.where for f in same) else 0.0
        if len(same) == 1:
            carried.append(Weighed(same[0], weight))
            continue
        text = f"{len(same):,} times: {same[0].text} ({some([f.where for f in same], 3)})"
        figures = {"where": [f.where for f in same]}
        carried.append(Weighed(Finding(level, code, "", text, same[0].advice, figures), weight))
    return carried


def _describe_refused(pack: Pack) -> Section:
    refused = [finding for finding in pack.findings if finding.level is Level.REFUSE]
    rows = tuple((printable(f.where), f.code, f.text, f.advice) for f in refused)
    title = counted(len(rows), "refused file")
    return Section(
        "refused",
        (Table(title, ("file", "code", "why", "what to do"), rows),) if rows else (),
        (),
        {
            "files": [{"path": f.where, "code": f.code, "why": f.text} for f in refused],
            "dropped": [path for path, _ in pack.header.dropped],
        },
    )


def _plain(value: object) -> object:
    """`value` with floats rounded and names that are no valid text escaped."""
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
