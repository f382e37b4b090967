"""The shape of the graph as data: who takes part, in which order, and who may follow whom.

Nodes, routers, path maps, the report tree and progress displays are derived from these tables. A
new analyst is one file that holds its `AnalystRow`, and one line in `ANALYSTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, cast

from langchain_core.messages import AIMessage

from tradingagents_core.errors import PipelineError, SettingsError
from tradingagents_core.protocols import NO_COMPANY, Identity
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.state import messages_of

Tier = Literal["quick", "deep"]
Router = Callable[[Mapping[str, object]], str]


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """Name one source that an analyst is given beforehand.

    Attributes:
        block: Name of its block in the prompt.
        tool: Tool that answers with it, or empty.
        table: Where there is no tool: table of the snapshot that would hold it.
    """

    block: str
    tool: str = ""
    table: str = ""


@dataclass(frozen=True, kw_only=True)
class AnalystRow:
    """Describe one analyst.

    Attributes:
        key: Name on the wire, in settings and configs.
        node: Node name, ending in " Analyst".
        report_field: State field of its report.
        tools: Tools that it may call, in the order in which they are offered.
        sources: What it is given beforehand; such an analyst calls no tool and has no tool loop.
        task: Its instructions; empty for those whose text is in `prompts.ANALYST_TASKS`.
        of_companies: It reads what only a company has; instruments of other kinds do without it.
    """

    key: str
    node: str
    report_field: str
    tools: tuple[str, ...] = ()
    sources: tuple[SourceRow, ...] = ()
    task: str = ""
    of_companies: bool = False

    @property
    def tools_node(self) -> str:
        """Name of the node that runs its tools."""
        return f"tools_{self.key}"

    @property
    def clear_node(self) -> str:
        """Name of the node that empties its conversation."""
        return f"Msg Clear {self.node.removesuffix(' Analyst')}"

    @property
    def branch_channel(self) -> str:
        """State field of its conversation where analysts run as parallel branches."""
        return f"{self.key}_messages"


ANALYSTS: tuple[AnalystRow, ...] = (
    AnalystRow(
        key="market",
        node="Market Analyst",
        report_field="market_report",
        tools=("get_stock_data", "get_indicators", "get_verified_market_snapshot"),
    ),
    # The key on the wire is older than the name: configurations say "social".
    AnalystRow(
        key="social",
        node="Sentiment Analyst",
        report_field="sentiment_report",
        sources=(
            SourceRow(block="news", tool="get_news"),
            SourceRow(block="stocktwits", table="social"),
            SourceRow(block="reddit", table="social"),
        ),
    ),
    AnalystRow(
        key="news",
        node="News Analyst",
        report_field="news_report",
        tools=(
            "get_news",
            "get_global_news",
            "get_insider_transactions",
            "get_macro_indicators",
            "get_prediction_markets",
        ),
    ),
    AnalystRow(
        key="fundamentals",
        node="Fundamentals Analyst",
        report_field="fundamentals_report",
        tools=(
            "get_fundamentals",
            "get_balance_sheet",
            "get_cashflow",
            "get_income_statement",
        ),
        of_companies=True,
    ),
)


@dataclass(frozen=True, kw_only=True)
class SpeakerRow:
    """Describe one side of a debate.

    Attributes:
        node: Node name.
        label: How its contributions are signed.
        history_field: Field of the debate with its own part.
        response_field: Field of the debate with what it said last.
    """

    node: str
    label: str
    history_field: str
    response_field: str

    @property
    def tag(self) -> str:
        """Name of the speaker by which the routers know who spoke last."""
        return self.label.partition(" ")[0]


@dataclass(frozen=True, kw_only=True)
class DebateRow:
    """Describe one debate.

    Attributes:
        state_field: State field that holds it.
        speakers: In speaking order; the first one opens.
        judge: Node that follows once all rounds are spoken.
        last_field: Field that tells who spoke last: it begins with that speaker's tag.
        history_block: Name under which prompts quote the whole debate.
        others_block: Name under which prompts quote what the others said last.
        rounds_setting: Field of `PipelineSettings` with the number of rounds.
        about_proposal: The speakers are shown the trader's proposal.
    """

    state_field: str
    speakers: tuple[SpeakerRow, ...]
    judge: str
    last_field: str
    history_block: str
    others_block: str
    rounds_setting: str
    about_proposal: bool = False

    def turns(self, settings: PipelineSettings) -> int:
        """Return how often somebody speaks before the judge."""
        return len(self.speakers) * cast("int", getattr(settings, self.rounds_setting))


INVEST_DEBATE = DebateRow(
    state_field="investment_debate_state",
    speakers=(
        SpeakerRow(
            node="Bull Researcher",
            label="Bull Analyst",
            history_field="bull_history",
            response_field="current_response",
        ),
        SpeakerRow(
            node="Bear Researcher",
            label="Bear Analyst",
            history_field="bear_history",
            response_field="current_response",
        ),
    ),
    judge="Research Manager",
    last_field="current_response",
    history_block="debate_history",
    others_block="opponent_argument",
    rounds_setting="max_debate_rounds",
)
RISK_DEBATE = DebateRow(
    state_field="risk_debate_state",
    speakers=tuple(
        SpeakerRow(
            node=f"{tag} Analyst",
            label=f"{tag} Analyst",
            history_field=f"{tag.lower()}_history",
            response_field=f"current_{tag.lower()}_response",
        )
        for tag in ("Aggressive", "Conservative", "Neutral")
    ),
    judge="Portfolio Manager",
    last_field="latest_speaker",
    history_block="risk_history",
    others_block="other_arguments",
    rounds_setting="max_risk_discuss_rounds",
    about_proposal=True,
)
TRADER = "Trader"
REFLECTOR = "Reflector"
DEEP_NODES = frozenset({INVEST_DEBATE.judge, RISK_DEBATE.judge})


def tier_of_node(node: str) -> Tier:
    """Return which model a node thinks with: the two judges are deep, all others quick."""
    return "deep" if node in DEEP_NODES else "quick"


def chosen_analysts(
    keys: Sequence[str], table: Sequence[AnalystRow] = ANALYSTS
) -> tuple[AnalystRow, ...]:
    """Return the rows of the chosen analysts, in the order in which they were chosen.

    Raises:
        SettingsError: For none, or for a key that is not in the table, with those that are.
    """
    rows = {row.key: row for row in table}
    known = ", ".join(rows)
    if not keys:
        raise SettingsError(f"no analyst is chosen: name at least one of {known}")
    for key in keys:
        if key not in rows:
            raise SettingsError(f"there is no analyst {key!r}: choose from {known}")
    return tuple(rows[key] for key in keys)


def analysts_for(identity: Identity, analysts: Sequence[AnalystRow]) -> tuple[AnalystRow, ...]:
    """Return those of the chosen analysts that have something to read about an instrument.

    Raises:
        PipelineError: None of them has.
    """
    if identity.is_company:
        return tuple(analysts)
    rows = tuple(row for row in analysts if not row.of_companies)
    if not rows:
        chosen = ", ".join(row.key for row in analysts)
        raise PipelineError(
            f"the chosen analysts ({chosen}) read companies alone, and {identity.symbol} is of "
            f"the kind {identity.asset_type}: choose another one besides"
        )
    return rows


def role_nodes(analysts: Sequence[AnalystRow]) -> tuple[str, ...]:
    """Return every node that asks a model, in the order of the first round."""
    return (
        *(row.node for row in analysts),
        *(speaker.node for speaker in INVEST_DEBATE.speakers),
        INVEST_DEBATE.judge,
        TRADER,
        *(speaker.node for speaker in RISK_DEBATE.speakers),
        RISK_DEBATE.judge,
    )


def analyst_router(row: AnalystRow, channel: str = "messages") -> Router:
    """Return the router behind an analyst: to its tools while it calls some, else to its end."""

    def route(state: Mapping[str, object]) -> str:
        last = messages_of(state, channel)[-1]
        wants = isinstance(last, AIMessage) and (last.tool_calls or last.invalid_tool_calls)
        return row.tools_node if wants else row.clear_node

    return route


def analyst_paths(row: AnalystRow) -> dict[str, str]:
    """Return the path map of `analyst_router`, with every value that it can return."""
    return {name: name for name in (row.tools_node, row.clear_node)}


def debate_router(debate: DebateRow, turns: int) -> Router:
    """Return the router of a debate: the next speaker in turn, the judge after ``turns``."""

    def route(state: Mapping[str, object]) -> str:
        said = cast("Mapping[str, object]", state[debate.state_field])
        if cast("int", said["count"]) >= turns:
            return debate.judge
        last = cast("str", said[debate.last_field])
        for position, speaker in enumerate(debate.speakers):
            if last.startswith(speaker.tag):
                return debate.speakers[(position + 1) % len(debate.speakers)].node
        return debate.speakers[0].node

    return route


def debate_paths(debate: DebateRow) -> dict[str, str]:
    """Return the path map of `debate_router`, with every value that it can return."""
    return {name: name for name in (*(row.node for row in debate.speakers), debate.judge)}


def step_limit(settings: PipelineSettings) -> int:
    """Return how many steps one cell may take.

    The recursion limit is an allowance for a graph with one round in each debate; further rounds
    are asked for by name, so their steps come on top and can never exhaust it.
    """
    debates = (INVEST_DEBATE, RISK_DEBATE)
    extra = sum(debate.turns(settings) - len(debate.speakers) for debate in debates)
    return settings.recursion_limit + max(extra, 0)


def topology_document(analysts: Sequence[AnalystRow]) -> dict[str, object]:
    """Return everything here that can change a run, as JSON values."""
    return {
        "analysts": [asdict(row) for row in analysts],
        "debates": [asdict(row) for row in (INVEST_DEBATE, RISK_DEBATE)],
        "deep": sorted(DEEP_NODES),
        "no_company": sorted(NO_COMPANY),
        "trader": TRADER,
        "reflector": REFLECTOR,
    }
