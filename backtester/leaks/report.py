"""What a leak audit found: findings with their place, counts by table, and what it cannot see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from backtester.leaks.poison import WAYS, Futures, Planted
from backtester.schema import TABLES
from backtester.snapshots.snapshot import Snapshot

LESSONS: Final = "lessons"
CLOCK: Final = "clock"
OTHER: Final = "(not told apart)"
FILES: Final = "(files)"

TRAINING: Final = "training data: what a language model learned about the period before the run"
STAMPS: Final = (
    "wrong dates at the source: a row counts as later where its known_at says so, and an "
    "estimated one is an estimate"
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Name one thing that the future changed, or one row that breaks a rule.

    Attributes:
        check: Of a run ``prompt, lesson, settlement, fill, lesson_shown`` or ``read``; of a
            pipeline ``output, repeat, file, memory, network`` or ``lookahead``.
        where: Cell, and node where there is one.
        detail: What changed or what the row says.
        table: Table that it came from, ``lessons`` or ``clock``; empty where that is not known.
        column: Column whose canary word was met, else empty.
    """

    check: str
    where: str
    detail: str
    table: str = ""
    column: str = ""

    def words(self) -> str:
        """Return it as one line."""
        place = ".".join(filter(None, (self.table, self.column)))
        return f"{self.check}{f' from {place}' if place else ''}: {self.where}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """Say what was tried with one table, or with lessons or the clock.

    Attributes:
        table: Its name.
        rows: Later rows that were rewritten or deleted, each counted at every cutoff before it.
        added: Later rows that were made up, likewise.
        texts: Canary words planted in both.
        prompts: Prompts (or outputs) compared while something of this table was changed.
        leaks: Findings that came from it.
        note: Why nothing was tried, else empty.
    """

    table: str
    rows: int = 0
    added: int = 0
    texts: int = 0
    prompts: int = 0
    leaks: int = 0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class LeakReport:
    """Say what was tried and what was found.

    Attributes:
        subject: Run, or pipeline and snapshot.
        ways: Worlds in which everything was done again.
        cutoffs: Cutoffs at which the future was changed.
        prompts: Prompts of a run, or outputs of a pipeline, made again and compared.
        lessons: Lessons written again and compared.
        fills: Fills audited against their cutoff.
        lessons_shown: Lessons shown, audited likewise.
        reads: Reads audited likewise.
        tables: What was tried with each table.
        findings: In the order in which they were met; empty for a clean subject.
        not_covered: What this audit cannot see.
        raised: Calls of a pipeline that raised the same error in every world.
    """

    subject: str
    ways: tuple[str, ...]
    cutoffs: int
    prompts: int
    lessons: int = 0
    fills: int = 0
    lessons_shown: int = 0
    reads: int = 0
    tables: tuple[TableLine, ...] = ()
    findings: tuple[Finding, ...] = ()
    not_covered: tuple[str, ...] = ()
    raised: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


class Steps(Protocol):
    """Take news of an audit; must not influence it."""

    def began(self, subject: str, steps: int, worlds: Sequence[str]) -> None:
        """Take the number of steps in each world, and the worlds' names in their order."""

    def advanced(self, steps: int, world: str, findings: int | None) -> None:
        """Take note of steps that are done in one world.

        Findings are those so far, or None where nothing is compared before all worlds are done.
        """


class NoSteps:
    """Say nothing; the `Steps` of library calls."""

    def began(self, subject: str, steps: int, worlds: Sequence[str]) -> None:
        """Ignore the beginning."""

    def advanced(self, steps: int, world: str, findings: int | None) -> None:
        """Ignore steps."""


@dataclass
class TableTally:
    """Count up one line."""

    rows: int = 0
    added: int = 0
    texts: int = 0
    prompts: int = 0


@dataclass
class Tally:
    """Count up a part of an audit; parts are added in order."""

    prompts: int = 0
    lessons: int = 0
    tables: dict[str, TableTally] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def tried(self, planted: Mapping[str, Planted], prompts: int) -> None:
        """Count what was changed, and the prompts that were compared under it."""
        for name, one in planted.items():
            if one.rows or one.added or one.texts:
                line = self.tables.setdefault(name, TableTally())
                line.rows += one.rows
                line.added += one.added
                line.texts += one.texts
                line.prompts += prompts

    def add(self, other: Tally) -> None:
        """Take the counts and findings of a later part."""
        self.prompts += other.prompts
        self.lessons += other.lessons
        self.findings += other.findings
        for name, line in other.tables.items():
            mine = self.tables.setdefault(name, TableTally())
            mine.rows += line.rows
            mine.added += line.added
            mine.texts += line.texts
            mine.prompts += line.prompts


def table_lines(tally: Tally, futures: Futures, *, extra: Sequence[str]) -> tuple[TableLine, ...]:
    """Return a line for every table of the schema, then the others.

    Args:
        tally: Counts.
        futures: Knows what the snapshot does not hold.
        extra: Further lines that are always there, such as ``clock``.
    """
    known = (*TABLES, *extra)
    found = [finding.table for finding in tally.findings]
    rest = sorted(set(found) - set(known) - {""})
    lines = [
        TableLine(
            table=name,
            leaks=found.count(name),
            note=_note(name, tally, futures),
            **vars(tally.tables.get(name, TableTally())),
        )
        for name in (*known, *rest)
    ]
    if "" in found:
        lines.append(TableLine(table=OTHER, leaks=found.count("")))
    return tuple(lines)


def _note(name: str, tally: Tally, futures: Futures) -> str:
    if name in futures.absent:
        return f"not in the snapshot: {futures.absent[name]}"
    if name in futures.tables and name not in tally.tables:
        return "no row of it is later than the cutoffs"
    return ""


def way_names() -> tuple[str, ...]:
    """Return the names of the worlds in which everything is done again."""
    return tuple(way.name for way in WAYS)


def static_names(snapshot: Snapshot, instruments: Iterable[str]) -> str:
    """Say whose identity is that of the capture, for the list of what is not covered."""
    static = [
        instrument
        for instrument in instruments
        if any(row.static for row in snapshot.identity_rows(instrument))
    ]
    if not static:
        return "static identity: none here, every name has a range of dates"
    return (
        f"static identity: names and sectors of {', '.join(static[:10])}"
        f"{f' and {len(static) - 10} more' if len(static) > 10 else ''} are those of the capture; "
        "prompts say so"
    )
