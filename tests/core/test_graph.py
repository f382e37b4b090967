"""The whole graph, driven by a scripted model: order, counters, state, limits, threads."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from typing import Any, get_type_hints

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.core.scripted_cast import (
    DECISION_TEXT,
    PLAN_TEXT,
    PROPOSAL_TEXT,
    SENTIMENT_TEXT,
    Cast,
    Turns,
    Watch,
    cell,
    fixed_view,
    lesson,
    pipeline,
)
from tests.support.fixed_view import FACEBOOK, FixedView
from tradingagents_core.errors import (
    LookaheadError,
    ModelOutcome,
    PipelineError,
    SettingsError,
    TurnLimitReached,
)
from tradingagents_core.graph import Pipeline, floor_graph
from tradingagents_core.llm.doubles import tool_reply
from tradingagents_core.protocols import Bars
from tradingagents_core.settings import ALL_ANALYSTS, PipelineSettings
from tradingagents_core.state import AgentState, empty_debate, empty_risk_debate
from tradingagents_core.topology import (
    ANALYSTS,
    INVEST_DEBATE,
    RISK_DEBATE,
    AnalystRow,
    analyst_paths,
    analyst_router,
    debate_paths,
    debate_router,
    step_limit,
)

PRICES = ("get_stock_data", {"symbol": "FB"})
SNAPSHOT = ("get_verified_market_snapshot", {"symbol": "FB"})

# What one analyst adds when it calls no tool; written out, for the tests to put together.
WITHOUT_TOOLS = {
    "market": ["Market Analyst", "Msg Clear Market"],
    "social": ["Sentiment Analyst", "Msg Clear Sentiment"],
    "news": ["News Analyst", "Msg Clear News"],
    "fundamentals": ["Fundamentals Analyst", "Msg Clear Fundamentals"],
}
DEBATES = {
    1: ["Bull Researcher", "Bear Researcher"],
    2: ["Bull Researcher", "Bear Researcher", "Bull Researcher", "Bear Researcher"],
    3: [
        *("Bull Researcher", "Bear Researcher", "Bull Researcher"),
        *("Bear Researcher", "Bull Researcher", "Bear Researcher"),
    ],
}
RISKS = {
    1: ["Aggressive Analyst", "Conservative Analyst", "Neutral Analyst"],
    2: [
        *("Aggressive Analyst", "Conservative Analyst", "Neutral Analyst"),
        *("Aggressive Analyst", "Conservative Analyst", "Neutral Analyst"),
    ],
    3: [
        *("Aggressive Analyst", "Conservative Analyst", "Neutral Analyst"),
        *("Aggressive Analyst", "Conservative Analyst", "Neutral Analyst"),
        *("Aggressive Analyst", "Conservative Analyst", "Neutral Analyst"),
    ],
}
SUBSETS = [
    *(keys for size in (1, 2, 3, 4) for keys in combinations(ALL_ANALYSTS, size)),
    ("fundamentals", "market"),
    ("news", "social", "market", "fundamentals"),
]


def run(cast: Cast, *, view: FixedView | None = None, **settings: Any) -> tuple[Any, Watch]:
    watch = Watch()
    decision = pipeline(cast, **settings).decide(cell(), view or fixed_view(), sink=watch)
    return decision, watch


# ---------------------------------------------------------------------------- order and counters


def test_the_nodes_of_a_plain_cell_run_in_this_order() -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES], [SNAPSHOT]]})
    decision, watch = run(cast)
    assert watch.nodes == [
        "Market Analyst",
        "tools_market",
        "Market Analyst",
        "tools_market",
        "Market Analyst",
        "Msg Clear Market",
        "Sentiment Analyst",
        "Msg Clear Sentiment",
        "News Analyst",
        "Msg Clear News",
        "Fundamentals Analyst",
        "Msg Clear Fundamentals",
        "Bull Researcher",
        "Bear Researcher",
        "Research Manager",
        "Trader",
        "Aggressive Analyst",
        "Conservative Analyst",
        "Neutral Analyst",
        "Portfolio Manager",
    ]
    assert decision.steps == 20


@pytest.mark.parametrize("keys", SUBSETS, ids="-".join)
def test_the_chosen_analysts_run_in_the_order_chosen(keys: tuple[str, ...]) -> None:
    cast = Cast()
    decision, watch = run(cast, analysts=keys)
    wanted = [node for key in keys for node in WITHOUT_TOOLS[key]]
    assert watch.nodes == [
        *wanted,
        *DEBATES[1],
        "Research Manager",
        "Trader",
        *RISKS[1],
        "Portfolio Manager",
    ]
    written = {"market": "market_report", "social": "sentiment_report", "news": "news_report"}
    for key, name in {**written, "fundamentals": "fundamentals_report"}.items():
        assert bool(decision.state[name]) == (key in keys)
        shown = f'<block name="{name}"' in cast.prompts("Bull Researcher")[0]
        assert shown == (key in keys)


@pytest.mark.parametrize("risk_rounds", [1, 2, 3])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_each_debate_takes_its_rounds_in_turn(rounds: int, risk_rounds: int) -> None:
    decision, watch = run(
        Cast(),
        analysts=("social",),
        max_debate_rounds=rounds,
        max_risk_discuss_rounds=risk_rounds,
    )
    assert watch.nodes == [
        *WITHOUT_TOOLS["social"],
        *DEBATES[rounds],
        "Research Manager",
        "Trader",
        *RISKS[risk_rounds],
        "Portfolio Manager",
    ]
    debate = json.loads(decision.state["investment_debate_state"])
    risk = json.loads(decision.state["risk_debate_state"])
    assert debate["count"] == {1: 2, 2: 4, 3: 6}[rounds]
    assert risk["count"] == {1: 3, 2: 6, 3: 9}[risk_rounds]
    assert decision.steps == len(watch.nodes)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4])
def test_an_analyst_goes_round_its_tools_until_it_writes(turns: int) -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES]] * turns})
    _, watch = run(cast, analysts=("market",))
    loops = {
        0: [],
        1: ["Market Analyst", "tools_market"],
        2: ["Market Analyst", "tools_market", "Market Analyst", "tools_market"],
        3: [
            *("Market Analyst", "tools_market", "Market Analyst", "tools_market"),
            *("Market Analyst", "tools_market"),
        ],
        4: [
            *("Market Analyst", "tools_market", "Market Analyst", "tools_market"),
            *("Market Analyst", "tools_market", "Market Analyst", "tools_market"),
        ],
    }
    assert watch.nodes[: 2 * turns + 3] == [
        *loops[turns],
        "Market Analyst",
        "Msg Clear Market",
        "Bull Researcher",
    ]
    final = [call for call in cast.heard if call.role == "Market Analyst"][-1]
    assert [type(message) for message in final.messages[2:]] == [AIMessage, ToolMessage] * turns


def test_calls_of_one_turn_are_answered_in_their_order() -> None:
    cast = Cast(turns={"Market Analyst": [[SNAPSHOT, PRICES], [PRICES]]})
    view = fixed_view()
    run(cast, view=view, analysts=("market",))
    last = [call for call in cast.heard if call.role == "Market Analyst"][-1]
    answers = [message for message in last.messages if isinstance(message, ToolMessage)]
    assert [answer.name for answer in answers] == [
        *("get_verified_market_snapshot", "get_stock_data", "get_stock_data")
    ]
    places = [(site.node, site.index, site.tool) for site in view.sites]
    assert list(dict.fromkeys(places)) == [
        ("Market Analyst", 0, "get_verified_market_snapshot"),
        ("Market Analyst", 1, "get_stock_data"),
        ("Market Analyst", 2, "get_stock_data"),
    ]


def test_each_call_knows_its_place() -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES]]})
    run(cast, analysts=("market",), max_debate_rounds=2)
    assert [(call.site.node, call.site.index) for call in cast.heard] == [
        ("Market Analyst", 0),
        ("Market Analyst", 1),
        ("Bull Researcher", 0),
        ("Bear Researcher", 0),
        ("Bull Researcher", 1),
        ("Bear Researcher", 1),
        ("Research Manager", 0),
        ("Trader", 0),
        ("Aggressive Analyst", 0),
        ("Conservative Analyst", 0),
        ("Neutral Analyst", 0),
        ("Portfolio Manager", 0),
    ]
    assert {call.site.cell for call in cast.heard} == {"META|2018-06-29|0"}
    assert [call.role for call in cast.heard] == [call.site.node for call in cast.heard]


def test_the_two_judges_think_deep_and_nobody_else() -> None:
    cast = Cast()
    run(cast)
    deep = [call.role for call in cast.heard if call.tier == "deep"]
    assert deep == ["Research Manager", "Portfolio Manager"]
    assert len(cast.heard) == 12


# ------------------------------------------------------------------------------------- the state


def test_the_state_has_the_fields_of_the_design_and_no_other() -> None:
    decision, _ = run(Cast())
    assert list(decision.state) == [
        "asset_type",
        "company_of_interest",
        "final_trade_decision",
        "fundamentals_report",
        "instrument_context",
        "investment_debate_state",
        "investment_plan",
        "market_report",
        "messages",
        "news_report",
        "past_context",
        "risk_debate_state",
        "sentiment_report",
        "trade_date",
        "trader_investment_plan",
    ]
    assert sorted(get_type_hints(AgentState)) == list(decision.state)


def test_every_field_holds_what_its_role_wrote() -> None:
    decision, _ = run(Cast())
    debates = ("investment_debate_state", "risk_debate_state")
    assert {name: text for name, text in decision.state.items() if name not in debates} == {
        "asset_type": "stock",
        "company_of_interest": "FB",
        "trade_date": "2018-06-29",
        "instrument_context": "FB (Facebook, Inc.), NASDAQ, quoted in USD",
        "past_context": "",
        "market_report": "Market Analyst speaks, call 0.",
        "sentiment_report": SENTIMENT_TEXT,
        "news_report": "News Analyst speaks, call 0.",
        "fundamentals_report": "Fundamentals Analyst speaks, call 0.",
        "investment_plan": PLAN_TEXT,
        "trader_investment_plan": PROPOSAL_TEXT,
        "final_trade_decision": DECISION_TEXT,
        "messages": (
            '[["human","Carry out the assignment of your system message now. It concerns FB '
            "(Facebook, Inc.), NASDAQ, quoted in USD. The simulated date is "
            '2018-06-29."]]'
        ),
    }
    assert (decision.rating, decision.source) == ("Overweight", "structured")
    assert decision.markdown == DECISION_TEXT
    assert json.loads(decision.typed)["rating"] == "Overweight"
    assert not decision.degraded


def test_the_bull_bear_debate_keeps_its_histories_and_its_verdict() -> None:
    decision, watch = run(Cast(), analysts=("social",), max_debate_rounds=2)
    bulls = [
        "Bull Analyst: Bull Researcher speaks, call 0.",
        "Bull Analyst: Bull Researcher speaks, call 1.",
    ]
    bears = [
        "Bear Analyst: Bear Researcher speaks, call 0.",
        "Bear Analyst: Bear Researcher speaks, call 1.",
    ]
    assert json.loads(decision.state["investment_debate_state"]) == {
        "history": "\n".join([bulls[0], bears[0], bulls[1], bears[1]]),
        "bull_history": "\n".join(bulls),
        "bear_history": "\n".join(bears),
        "current_response": PLAN_TEXT,
        "judge_decision": PLAN_TEXT,
        "count": 4,
    }
    spoken = watch.updates["Bear Researcher"]["investment_debate_state"]
    assert spoken["current_response"] == bears[1]


def test_the_risk_debate_keeps_its_histories_and_who_spoke_last() -> None:
    decision, watch = run(Cast(), analysts=("social",))
    said = {
        name: f"{name} Analyst: {name} Analyst speaks, call 0."
        for name in ("Aggressive", "Conservative", "Neutral")
    }
    assert json.loads(decision.state["risk_debate_state"]) == {
        "history": "\n".join(said.values()),
        "aggressive_history": said["Aggressive"],
        "conservative_history": said["Conservative"],
        "neutral_history": said["Neutral"],
        "current_aggressive_response": said["Aggressive"],
        "current_conservative_response": said["Conservative"],
        "current_neutral_response": said["Neutral"],
        "latest_speaker": "Judge",
        "judge_decision": DECISION_TEXT,
        "count": 3,
    }
    spoken = [
        watch.updates[f"{name} Analyst"]["risk_debate_state"]["latest_speaker"] for name in said
    ]
    assert spoken == ["Aggressive", "Conservative", "Neutral"]


def test_speakers_are_shown_what_was_said_and_openers_that_nothing_was() -> None:
    cast = Cast()
    run(cast, max_debate_rounds=2)
    first, second = cast.prompts("Bull Researcher")
    assert "you open the debate" in first
    assert "debate_history" not in first
    assert (
        '<block name="opponent_argument" kind="debate">\n'
        "Bear Analyst: Bear Researcher speaks, call 0.\n</block>"
    ) in second
    (neutral,) = cast.prompts("Neutral Analyst")
    assert (
        '<block name="other_arguments" kind="debate">\n'
        "Aggressive Analyst: Aggressive Analyst speaks, call 0.\n\n"
        "Conservative Analyst: Conservative Analyst speaks, call 0.\n</block>"
    ) in neutral
    assert PROPOSAL_TEXT in neutral


def test_the_conversation_of_one_analyst_never_reaches_the_next() -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES]]})
    run(cast)
    news = next(call for call in cast.heard if call.role == "News Analyst")
    assert [type(message) for message in news.messages[1:]] == [HumanMessage]
    assert "Market Analyst speaks" not in news.text


# ------------------------------------------------------------------------------- tools that fail


def test_the_turn_after_the_last_writes_the_report_with_tools_refused() -> None:
    cast = Cast(always="Market Analyst")
    decision, watch = run(cast, analysts=("market",), max_tool_turns=2)
    assert watch.nodes[:6] == [
        *("Market Analyst", "tools_market", "Market Analyst", "tools_market"),
        *("Market Analyst", "Msg Clear Market"),
    ]
    calls = [call for call in cast.heard if call.role == "Market Analyst"]
    assert [call.arguments.get("tool_choice") for call in calls] == [None, None, "none"]
    assert "You have used all 2 turns" in str(calls[-1].messages[-1].text)
    assert decision.state["market_report"] == (
        "(No report: the analyst asked for more tools at the limit of 2 tool turns.)"
    )


def test_a_report_at_the_limit_says_that_further_calls_were_dropped() -> None:
    greedy = tool_reply(PRICES, text="The trend is up.")
    cast = Cast(lines={"Market Analyst": [greedy, greedy]})
    decision, _ = run(cast, analysts=("market",), max_tool_turns=1)
    assert decision.state["market_report"] == (
        "The trend is up.\n\n"
        "(Written at the limit of 1 tool turns; further tool calls were not made.)"
    )


def test_an_analyst_without_tool_turns_writes_at_once() -> None:
    cast = Cast()
    _, watch = run(cast, analysts=("market",), max_tool_turns=0)
    assert watch.nodes[:2] == ["Market Analyst", "Msg Clear Market"]
    (call,) = [call for call in cast.heard if call.role == "Market Analyst"]
    assert [type(message) for message in call.messages[1:]] == [HumanMessage]


def test_an_invented_tool_is_answered_with_the_tools_there_are() -> None:
    cast = Cast(turns={"News Analyst": [[("get_rumours", {}), PRICES]]})
    decision, _ = run(cast, analysts=("news",))
    last = [call for call in cast.heard if call.role == "News Analyst"][-1]
    answers = [str(m.text) for m in last.messages if isinstance(m, ToolMessage)]
    for answer in answers:
        assert answer.startswith("UNKNOWN_TOOL: ")
        assert answer.endswith(
            "call one of get_news, get_global_news, get_insider_transactions, "
            "get_macro_indicators, get_prediction_markets"
        )
    assert len(answers) == 2
    assert decision.rating == "Overweight"


def test_tool_arguments_that_are_no_json_are_answered_and_do_not_end_the_report() -> None:
    broken = AIMessage(
        content="",
        invalid_tool_calls=[
            {
                "type": "invalid_tool_call",
                "id": "call_7",
                "name": "get_stock_data",
                "args": '{"symbol": ',
                "error": None,
            }
        ],
    )
    cast = Cast(lines={"Market Analyst": [broken]})
    decision, watch = run(cast, analysts=("market",))
    assert watch.nodes[:3] == ["Market Analyst", "tools_market", "Market Analyst"]
    answer = [call for call in cast.heard if call.role == "Market Analyst"][-1].messages[-1]
    assert isinstance(answer, ToolMessage)
    assert answer.tool_call_id == "call_7"
    assert str(answer.text).startswith("INVALID_ARGUMENTS: ")
    assert decision.state["market_report"] == "Market Analyst speaks, call 1."


def test_a_core_tool_without_data_marks_the_cell() -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES], [SNAPSHOT]]})
    decision, _ = run(cast, view=fixed_view(stale="the last bar is 40 sessions old"))
    assert decision.degraded
    last = [call for call in cast.heard if call.role == "Market Analyst"][-1]
    assert "NO_DATA_AVAILABLE: the last bar is 40 sessions old" in last.text


def test_steps_without_end_are_a_typed_error_that_names_the_last_node() -> None:
    cast = Cast(always="Market Analyst")
    with pytest.raises(TurnLimitReached, match="12 graph steps were not enough") as caught:
        run(cast, analysts=("market",), max_tool_turns=50, recursion_limit=12)
    assert caught.value.error_class == "recursion_limit"
    assert "META|2018-06-29|0" in str(caught.value)
    assert "the last was tools_market" in str(caught.value)


def test_the_limit_is_the_number_of_steps() -> None:
    assert run(Cast(), analysts=("social",), recursion_limit=10)[0].steps == 10
    with pytest.raises(TurnLimitReached):
        run(Cast(), analysts=("social",), recursion_limit=9)


def test_rounds_that_were_asked_for_never_exhaust_the_limit() -> None:
    decision, _ = run(Cast(), max_debate_rounds=20, max_risk_discuss_rounds=20, recursion_limit=100)
    assert decision.steps == 8 + 40 + 2 + 60 + 1
    settings = PipelineSettings(max_debate_rounds=20, max_risk_discuss_rounds=20)
    assert step_limit(settings) == 100 + 38 + 57


@pytest.mark.parametrize("role", ["Market Analyst", "Bull Researcher", "Neutral Analyst"])
def test_a_role_that_says_nothing_fails_the_cell(role: str) -> None:
    with pytest.raises(PipelineError, match="empty"):
        run(Cast(lines={role: [""]}))


def test_a_failed_call_fails_its_cell() -> None:
    with pytest.raises(ModelOutcome, match="transport"):
        run(Cast(lines={"Trader": [ModelOutcome("transport", "no route")]}))


def test_a_decision_that_cannot_be_read_is_no_hold() -> None:
    prose = "It could go either way. Hold on."
    decision, _ = run(Cast(lines={"Portfolio Manager": [prose] * 3}), max_repairs=1)
    assert (decision.rating, decision.source, decision.typed) == (None, "none", "null")
    assert decision.markdown == prose


# ------------------------------------------------------------------------- leaks pass everything


class LeakyView(FixedView):
    """Raise as a view does that is about to show a later row."""

    def bars(self, symbol: str, **window: Any) -> Bars:
        raise LookaheadError(f"{symbol}: a row of 2018-07-02")


@pytest.mark.parametrize("parallel", [False, True])
def test_a_leak_ends_the_run_and_nothing_catches_it(parallel: bool) -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES]]})
    held = fixed_view()
    with pytest.raises(LookaheadError, match="2018-07-02"):
        run(cast, view=LeakyView(held.all_bars), analysts_parallel=parallel)


def test_a_leak_passes_out_of_worker_threads() -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES]]})
    shared = pipeline(cast)
    view = LeakyView(fixed_view().all_bars)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(shared.decide, cell(trial=n), view) for n in range(4)]
        errors = [run.exception() for run in runs]
    assert [type(error) for error in errors] == [LookaheadError] * 4


# --------------------------------------------------------------------------- each cell for itself


def test_two_cells_in_a_row_know_nothing_of_each_other() -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES], [SNAPSHOT]]})
    shared = pipeline(cast)
    view = fixed_view()
    first = shared.decide(cell(), view)
    half = len(cast.heard)
    second = shared.decide(cell(), view)
    assert second == first
    assert [call.text for call in cast.heard[half:]] == [call.text for call in cast.heard[:half]]


@pytest.mark.parametrize("parallel", [False, True])
def test_cells_that_are_decided_at_once_in_threads_equal_cells_in_a_row(parallel: bool) -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES], [SNAPSHOT]]})
    shared = pipeline(cast, analysts_parallel=parallel)
    cells = [
        cell(cell=f"META|2018-06-29|{n}", trial=n, own_lessons=(lesson(reflection=f"Lesson {n}."),))
        for n in range(8)
    ]
    in_a_row = [shared.decide(one, fixed_view()) for one in cells]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(lambda one: shared.decide(one, fixed_view()), cells))
    assert at_once == in_a_row
    assert len({decision.state["past_context"] for decision in in_a_row}) == 8
    for call in cast.heard:
        if call.role == "Portfolio Manager":
            assert f"Lesson {call.site.trial}." in call.text


def test_two_pipelines_with_other_settings_know_nothing_of_each_other() -> None:
    german, plain = Cast(), Cast()
    one = pipeline(german, output_language="German", max_debate_rounds=2, analysts=("news",))
    other = pipeline(plain)
    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(shared.decide, cell(), fixed_view()) for shared in (one, other, one, other)
        ]
        decisions = [run.result() for run in runs]
    assert decisions[0] == decisions[2] != decisions[1] == decisions[3]
    assert all("Write in German." in text for text in german.prompts("Trader"))
    assert not any("Write in" in call.text for call in plain.heard)
    assert len(german.prompts("Bull Researcher")) == 2 * len(plain.prompts("Bull Researcher"))


def test_analysts_in_parallel_say_and_are_asked_the_same() -> None:
    turns: Turns = {
        "Market Analyst": [[PRICES], [SNAPSHOT]],
        "News Analyst": [[("get_global_news", {})]],
    }
    in_turn, at_once = Cast(turns=turns), Cast(turns=turns)
    one, watch = run(in_turn)
    other, _ = run(at_once, analysts_parallel=True)
    assert replace(other, steps=0) == replace(one, steps=0)
    assert other.steps == len(watch.nodes)
    for role in {call.role for call in in_turn.heard}:
        assert at_once.prompts(role) == in_turn.prompts(role)


def test_the_sites_of_parallel_analysts_do_not_mix() -> None:
    cast = Cast(turns={"Market Analyst": [[PRICES], [SNAPSHOT]]})
    view = fixed_view()
    run(cast, view=view, analysts_parallel=True)
    assert {site.node for site in view.sites} == {"Market Analyst"}
    assert [call.role for call in cast.heard] == [call.site.node for call in cast.heard]


# ------------------------------------------------------------------------------- tables and routes


def test_a_router_returns_nothing_that_its_path_map_lacks() -> None:
    for row in ANALYSTS:
        paths = analyst_paths(row)
        for last in (
            AIMessage(content="x"),
            AIMessage(
                content="", tool_calls=[{"name": "a", "args": {}, "id": "1", "type": "tool_call"}]
            ),
        ):
            assert analyst_router(row)({"messages": [last]}) in paths
    for debate, empty in ((INVEST_DEBATE, empty_debate()), (RISK_DEBATE, empty_risk_debate())):
        for spoken in ("", "Bull", "Bear", "Neutral Analyst", "Conservative", "Aggressive", "odd"):
            for count in range(8):
                held = {**empty, debate.last_field: spoken, "count": count}
                found = debate_router(debate, 6)({debate.state_field: held})
                assert found in debate_paths(debate)
                assert (found == debate.judge) == (count >= 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"analysts": ("market", "gossip")}, "no analyst 'gossip': choose from market, social,"),
        ({"analysts": ()}, "analysts is empty"),
        ({"lesson_roles": ("Judge",)}, "lesson_roles names 'Judge'"),
        (
            {"analysts": ("news",), "lesson_roles": ("Market Analyst",)},
            "choose from News Analyst, Bull Researcher",
        ),
    ],
)
def test_a_name_that_does_not_exist_is_refused_before_anything_runs(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        pipeline(Cast(), **settings)


def test_a_new_analyst_is_one_row() -> None:
    row = AnalystRow(
        key="macro",
        node="Macro Analyst",
        report_field="macro_report",
        tools=("get_macro_indicators",),
        task="You read the economy, over {price_lookback} sessions.",
    )
    cast = Cast(turns={"Macro Analyst": [[("get_macro_indicators", {"indicator": "CPI"})]]})
    watch = Watch()
    settings = PipelineSettings(analysts=("macro", "social"))
    shared = Pipeline(settings, cast.models(), analysts=(*ANALYSTS, row))
    decision = shared.decide(cell(), fixed_view(), sink=watch)
    assert watch.nodes[:5] == [
        *("Macro Analyst", "tools_macro", "Macro Analyst", "Msg Clear Macro"),
        "Sentiment Analyst",
    ]
    assert decision.state["macro_report"] == "Macro Analyst speaks, call 1."
    assert "You read the economy, over 30 sessions." in cast.prompts("Macro Analyst")[0]
    assert '<block name="macro_report" kind="report">' in cast.prompts("Trader")[0]


# ------------------------------------------------------------------------- kinds of instruments


def kind_of(asset_type: str) -> FixedView:
    return fixed_view(identity_row=replace(FACEBOOK, asset_type=asset_type))


@pytest.mark.parametrize("kind", ["crypto", "fx", "future", "index"])
@pytest.mark.parametrize("parallel", [False, True])
def test_what_is_no_company_runs_without_its_fundamentals(kind: str, parallel: bool) -> None:
    cast, watch = Cast(), Watch()
    shared = pipeline(cast, analysts_parallel=parallel)
    decision = shared.decide(cell(), kind_of(kind), sink=watch)
    assert "Fundamentals Analyst" not in watch.nodes
    assert decision.state["fundamentals_report"] == ""
    assert decision.state["asset_type"] == kind
    assert not any("fundamentals_report" in call.text for call in cast.heard)
    # The same pipeline goes on deciding companies with all of them.
    companies = Watch()
    shared.decide(cell(), fixed_view(), sink=companies)
    assert "Fundamentals Analyst" in companies.nodes


def test_an_instrument_that_no_chosen_analyst_can_read_fails_its_cell() -> None:
    shared = pipeline(Cast(), analysts=("fundamentals",))
    with pytest.raises(PipelineError, match=r"\(fundamentals\) read companies alone, and FB is of"):
        shared.decide(cell(), kind_of("crypto"))


def test_the_floor_runs_as_many_empty_nodes_as_asked() -> None:
    for steps in (1, 22):
        assert floor_graph(steps)() is not None
