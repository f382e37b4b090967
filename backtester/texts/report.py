"""The report tree of one decision: a Markdown file for each role, and one with everything.

    <folder>/1_analysts/market.md sentiment.md news.md fundamentals.md
             2_research/bull.md bear.md manager.md
             3_trading/trader.md
             4_risk/aggressive.md conservative.md neutral.md
             5_portfolio/decision.md
             complete_report.md

Sections and files follow from the tables of `tradingagents_core.topology`, so a new analyst has
its file without a line here. A role that wrote nothing has no file. A role's text is the same in
its own file and in the complete report, where it stands under our headings and cannot add to them.
Equal states give equal bytes: no file holds a time of writing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backtester.errors import DataError, UsageError
from backtester.texts.artefacts import (
    State,
    checked_symbol,
    debate_of,
    session_of,
    symbol_of,
    text_of,
    write_text,
)
from backtester.texts.markdown import nested_text
from tradingagents_core.topology import (
    ANALYSTS,
    INVEST_DEBATE,
    RISK_DEBATE,
    TRADER,
    AnalystRow,
    DebateRow,
)

COMPLETE: Final = "complete_report.md"
_FIELD = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Name one role's file.

    Attributes:
        file: File name.
        role: Heading in the complete report: the node's name.
        field: State field that holds the text.
        inner: Field of the debate, where the state field is one; else empty.
    """

    file: str
    role: str
    field: str
    inner: str = ""

    def read(self, state: State) -> str:
        """Return what the role wrote, fit to stand below a heading; empty if nothing."""
        if not self.inner:
            return nested_text(text_of(state, self.field))
        return nested_text(text_of(debate_of(state, self.field), self.inner))


@dataclass(frozen=True, kw_only=True)
class Section:
    """Name one team's folder and its place in the complete report."""

    folder: str
    title: str
    parts: tuple[Part, ...]


def sections(analysts: Sequence[AnalystRow] = ANALYSTS) -> tuple[Section, ...]:
    """Return the tree as a table, in the order in which the teams work.

    Raises:
        DataError: A report field that gives no file name.
    """
    plan = Part(file="manager.md", role=INVEST_DEBATE.judge, field="investment_plan")
    proposal = Part(file="trader.md", role=TRADER, field="trader_investment_plan")
    decision = Part(file="decision.md", role=RISK_DEBATE.judge, field="final_trade_decision")
    return (
        Section(
            folder="1_analysts",
            title="I. Analyst Team Reports",
            parts=tuple(_report(row) for row in analysts),
        ),
        Section(
            folder="2_research",
            title="II. Research Team Decision",
            parts=(*_speeches(INVEST_DEBATE), plan),
        ),
        Section(folder="3_trading", title="III. Trading Team Plan", parts=(proposal,)),
        Section(
            folder="4_risk",
            title="IV. Risk Management Team Decision",
            parts=_speeches(RISK_DEBATE),
        ),
        Section(folder="5_portfolio", title="V. Portfolio Manager Decision", parts=(decision,)),
    )


def write_report_tree(
    state: State, folder: Path, *, analysts: Sequence[AnalystRow] = ANALYSTS
) -> Path:
    """Write the tree of a finished state and return the path of the complete report.

    A tree that was there is replaced: the file of a role that is silent now is removed. Files of
    other names stay.

    Args:
        state: `Decision.state`.
        folder: Where the tree goes; made if missing.
        analysts: Table that the analysts were chosen from.

    Raises:
        DataError: The state names no ticker or date, or a field holds no text.
        UsageError: The folder cannot be written.
    """
    table = sections(analysts)
    heading = f"# Trading Analysis Report: {symbol_of(state)}, {session_of(state)}"
    # Everything is read before anything is written, so a state that does not fit writes nothing.
    said = {part: part.read(state) for section in table for part in section.parts}
    document = [heading, nested_text(text_of(state, "instrument_context"))]
    for section in table:
        spoken = [part for part in section.parts if said[part]]
        if spoken:
            document.append(f"## {section.title}")
        for part in spoken:
            document += [f"### {part.role}", said[part]]
    for section in table:
        for part in section.parts:
            _place(folder / section.folder / part.file, said[part])
    return write_text(folder / COMPLETE, "\n\n".join(filter(None, document)) + "\n")


def save_reports(
    state: State, ticker: str, reports_dir: Path, *, analysts: Sequence[AnalystRow] = ANALYSTS
) -> Path:
    """Write the tree under ``<reports_dir>/<ticker>/<date>`` and return the complete report.

    Args:
        state: Final state, as `TradingAgentsGraph.propagate` returns it.
        ticker: As asked for; it may be another name of the instrument than the state has.
        reports_dir: Root of such trees.
        analysts: Table that the analysts were chosen from.

    Raises:
        DataError: No ticker, no date, or a field that holds no text.
        UsageError: The folder cannot be written.
    """
    name = checked_symbol(ticker, "ticker of the reports")
    folder = reports_dir / name / session_of(state).isoformat()
    return write_report_tree(state, folder, analysts=analysts)


def _report(row: AnalystRow) -> Part:
    if not _FIELD.match(row.report_field):
        raise DataError(
            f"analyst {row.key!r} reports into {row.report_field!r}: "
            "write small letters, digits and _, such as macro_report"
        )
    file = row.report_field.removesuffix("_report") + ".md"
    return Part(file=file, role=row.node, field=row.report_field)


def _speeches(debate: DebateRow) -> tuple[Part, ...]:
    return tuple(
        Part(
            file=f"{speaker.tag.lower()}.md",
            role=speaker.node,
            field=debate.state_field,
            inner=speaker.history_field,
        )
        for speaker in debate.speakers
    )


def _place(path: Path, text: str) -> None:
    if text:
        write_text(path, text + "\n")
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path} is left from an older tree and cannot be removed ({error.strerror})"
        ) from error
