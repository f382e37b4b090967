"""What a person sees of an analysis: who works, what was reported, what it costs.

On a terminal a small board is redrawn below the reports as they come. In a pipe, progress goes to
standard error line by line, and standard output holds the reports and the result alone.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from backtester.texts.terminal import printable
from tradingagents_core.topology import INVEST_DEBATE, RISK_DEBATE, TRADER, DebateRow

if TYPE_CHECKING:
    from backtester.desk.attended import Opening
    from backtester.records import CallRecord, LessonRecord

WAITING, WORKING, DONE = "waiting", "working", "done"
_STYLES: Final = {WAITING: "dim", WORKING: "bold yellow", DONE: "green"}
_MARKS: Final = {WAITING: "·", WORKING: "●", DONE: "✓"}
_PLAIN_MARKS: Final = {WAITING: ".", WORKING: "*", DONE: "x"}
_REPORTS: Final = {
    INVEST_DEBATE.judge: "investment_plan",
    TRADER: "trader_investment_plan",
    RISK_DEBATE.judge: "final_trade_decision",
}
# Folder of the report tree in which the speeches of a debate are kept.
_DEBATES: Final = {"2_research": INVEST_DEBATE, "4_risk": RISK_DEBATE}
_LONGEST_SPEECH: Final = 1200


@dataclass(frozen=True, kw_only=True)
class Team:
    """Name the roles that are shown on one line."""

    name: str
    roles: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Add up what model calls took.

    Attributes:
        hits: Calls served from the cache.
        misses: Calls made.
        tokens_in: As reported, of all calls; so ``tokens_out``.
        tokens_out: Tokens of the replies.
        cost: US dollars of the calls with a known price.
        unpriced: Calls made whose price is unknown.
    """

    hits: int
    misses: int
    tokens_in: int
    tokens_out: int
    cost: float
    unpriced: int

    @classmethod
    def of(cls, calls: Sequence[CallRecord]) -> Usage:
        """Add up calls."""
        return cls(
            hits=sum(call.hit for call in calls),
            misses=sum(not call.hit for call in calls),
            tokens_in=sum(call.input_tokens or 0 for call in calls),
            tokens_out=sum(call.output_tokens or 0 for call in calls),
            cost=sum(call.cost_usd or 0.0 for call in calls),
            unpriced=sum(call.cost_usd is None for call in calls),
        )

    def __str__(self) -> str:
        """Return one line."""
        price = f"${self.cost:.4f}"
        if self.unpriced:
            price = "unknown" if not self.cost else f"{price} + {self.unpriced} calls unpriced"
        return (
            f"{self.hits + self.misses} calls, {self.hits} from the cache; "
            f"tokens {self.tokens_in:,} in, {self.tokens_out:,} out; cost {price}"
        )


class Board:
    """Know who has worked, who works and who waits; safe to tell from several threads."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.tools = 0
        self._lock = threading.Lock()
        self._states: dict[str, str] = {}
        self._spoken: dict[str, int] = {}
        self._rounds = {
            speaker.node: debate.turns(opening.settings) // len(debate.speakers)
            for debate in (INVEST_DEBATE, RISK_DEBATE)
            for speaker in debate.speakers
        }
        self._analysts = {
            node: row
            for row in opening.analysts
            for node in (row.node, row.tools_node, row.clear_node)
        }
        for node in opening.done:
            self.finished(node, {})

    @property
    def teams(self) -> tuple[Team, ...]:
        """The roles, in the order of their work."""
        return (
            Team(name="Analysts", roles=tuple(row.node for row in self.opening.analysts)),
            Team(name="Research", roles=_roles(INVEST_DEBATE)),
            Team(name="Trading", roles=(TRADER,)),
            Team(name="Risk", roles=_roles(RISK_DEBATE)[:-1]),
            Team(name="Portfolio", roles=(RISK_DEBATE.judge,)),
        )

    def started(self, node: str) -> str:
        """Take a node that begins and return its role, empty where it worked already."""
        role = self._role(node)
        with self._lock:
            before = self._states.get(role)
            self._states[role] = WORKING
        return "" if before == WORKING else role

    def finished(self, node: str, update: Mapping[str, Any]) -> str:
        """Take a node that ended and return its role, empty where it is not done with it."""
        role = self._role(node)
        row = self._analysts.get(node)
        with self._lock:
            if row is not None and node == row.tools_node:
                self.tools += sum(len(said) for said in update.values() if isinstance(said, list))
            if row is not None and node != row.clear_node:
                return ""
            self._spoken[role] = self._spoken.get(role, 0) + 1
            done = self._spoken[role] >= self._rounds.get(role, 1)
            self._states[role] = DONE if done else WAITING
        return role

    def state_of(self, role: str) -> str:
        """Return whether a role waits, works or is done."""
        return self._states.get(role, WAITING)

    def words_of(self, role: str) -> str:
        """Return a role's short name, with the rounds it has spoken where there are several."""
        name = role.removesuffix(" Analyst").removesuffix(" Researcher")
        rounds = self._rounds.get(role, 1)
        return name if rounds == 1 else f"{name} {self._spoken.get(role, 0)}/{rounds}"

    def report_of(self, node: str, update: Mapping[str, Any]) -> str:
        """Return the report that a node has just handed in, or an empty text."""
        row = self._analysts.get(node)
        field = row.report_field if row is not None else _REPORTS.get(node, "")
        said = str(update.get(field, "")) if field else _speech_of(node, update)
        return printable(said).strip()

    def _role(self, node: str) -> str:
        row = self._analysts.get(node)
        return row.node if row is not None else node


def _speech_of(node: str, update: Mapping[str, Any]) -> str:
    """Return what a side of a debate has just said, shortened, or an empty text."""
    for folder, debate in _DEBATES.items():
        for speaker in debate.speakers:
            if speaker.node == node and debate.state_field in update:
                said = str(update[debate.state_field][speaker.response_field])
                file = f"{folder}/{speaker.tag.lower()}.md"
                return _short(said.removeprefix(f"{speaker.label}:").strip(), file)
    return ""


def _short(text: str, file: str) -> str:
    """Cut a long speech at a blank and say where all of it is."""
    if len(text) <= _LONGEST_SPEECH:
        return text
    front = text[:_LONGEST_SPEECH].rsplit(maxsplit=1)[0]
    return f"{front} ...\n\n(shortened; all of it will be in {file} beside the report)"


def _as_written(report: str) -> Markdown:
    """Return Markdown whose line ends stay line ends, as in the text."""
    markdown = Markdown(report, hyperlinks=False)
    for token in markdown.parsed:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    return markdown


def lessons_in_words(count: int) -> str:
    """Return how many lessons are shown."""
    return f"{count} lesson{'' if count == 1 else 's'} shown"


def _roles(debate: DebateRow) -> tuple[str, ...]:
    return (*(speaker.node for speaker in debate.speakers), debate.judge)


def _headline(opening: Opening) -> str:
    words = f"{opening.symbol} on {opening.session}, {lessons_in_words(opening.lessons)}"
    if opening.done:
        words += f", going on after {opening.done[-1]}"
    return words


class TerminalView:
    """Draw the board at the foot of a terminal, and print each report above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._board: Board | None = None
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=8, transient=True
        )

    def __enter__(self) -> TerminalView:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing."""
        self._live.stop()

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Say which earlier decisions were settled."""
        for line in _settled_lines(lessons):
            self._console.print(line, markup=False, highlight=False)

    def opened(self, opening: Opening) -> None:
        """Put up the board."""
        self._board = Board(opening)

    def node_started(self, node: str) -> None:
        """Show who works."""
        if self._board is not None and self._board.started(node):
            self._live.refresh()

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        """Show who is done, and print the report."""
        if self._board is None:
            return
        if self._board.finished(node, update):
            self._live.refresh()
        report = self._board.report_of(node, update)
        if report:
            title = Text(node)
            self._console.print(Rule(title, align="left"), _as_written(report), "")

    def _draw(self) -> RenderableType:
        if self._board is None:
            return Text("settling what has resolved ...", style="dim")
        board = self._board
        marks = _PLAIN_MARKS if self._console.options.ascii_only else _MARKS
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column()
        for team in board.teams:
            line = Text()
            for role in team.roles:
                state = board.state_of(role)
                # A name stays on one line with its mark when the roles of a team are folded.
                words = f"{marks[state]} {board.words_of(role)}".replace(" ", "\u00a0")
                line.append(words, style=_STYLES[state]).append("   ")
            grid.add_row(Text(team.name, style="bold"), line)
        usage = Usage.of(board.opening.calls())
        grid.add_row(Text("Used", style="bold"), Text(f"{usage}; {board.tools} tool calls"))
        table = Table.grid()
        table.add_row(Rule(Text(_headline(board.opening)), align="left"))
        table.add_row(grid)
        return table


class PipeView:
    """Write progress to standard error and reports to standard output, as plain text."""

    def __init__(self, out: Console, err: Console) -> None:
        self._out = out
        self._err = err
        self._board: Board | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> PipeView:
        """Begin; nothing is drawn."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; nothing was drawn."""

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Say which earlier decisions were settled."""
        for line in _settled_lines(lessons):
            self._tell(line)

    def opened(self, opening: Opening) -> None:
        """Say what begins."""
        self._board = Board(opening)
        self._tell(_headline(opening))

    def node_started(self, node: str) -> None:
        """Say who begins to work."""
        role = self._board.started(node) if self._board is not None else ""
        if role:
            self._tell(f"{role} works ...")

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        """Say who is done, and write the report."""
        if self._board is None:
            return
        role = self._board.finished(node, update)
        report = self._board.report_of(node, update)
        if report:
            with self._lock:
                _write(self._out, f"## {node}\n\n{report}\n")
        if role:
            self._tell(f"{role} is done; {Usage.of(self._board.opening.calls())}")

    def _tell(self, line: str) -> None:
        with self._lock:
            _write(self._err, line)


def _settled_lines(lessons: Sequence[LessonRecord]) -> list[str]:
    return [
        f"settled {row.key.ticker} of {row.key.session}: return {_percent(row.raw_return)}, "
        f"alpha {_percent(row.alpha)}, lesson {row.lesson_status}"
        for row in lessons
    ]


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:+.2f} %"


def _write(console: Console, text: str) -> None:
    try:
        console.file.write(text + "\n")
        console.file.flush()
    except BrokenPipeError:
        # A reader who has seen enough (head) must not cost the decision that is being made.
        console.file = io.StringIO()
