"""The rulebook inside the real pipeline, on the committed snapshot."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from backtester.calendar import calendar_by_code, grid_sessions
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.snapshots.view import AsOfView, ViewCache
from tradingagents_core.graph import Models, Pipeline
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.rulebook import RulebookChatModel
from tradingagents_core.llm.rulebook_rules import assess, read_figures, volatility_rule
from tradingagents_core.protocols import CellRequest, Decision, Lesson
from tradingagents_core.settings import ModelSpec, PipelineSettings
from tradingagents_core.tools import run_tool

NEW_YORK = calendar_by_code("XNYS")
SYMBOLS = ("AAPL", "AMZN", "GOOG", "FB", "NFLX", "NVDA")
DAY = date(2018, 2, 2)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ViewCache:
    folder: Path = tmp_path_factory.mktemp("data")
    snapshot: Snapshot = open_snapshot("us-2013-2018", folder)
    return ViewCache(snapshot)


def view(cache: ViewCache, day: date) -> AsOfView:
    return AsOfView(
        cache.snapshot,
        cutoff=NEW_YORK.close_utc(day),
        session=day,
        decision_time="close",
        on_read=lambda read: None,
        cache=cache,
    )


def decide(cache: ViewCache, pipeline: Pipeline, *lessons: Lesson, day: date = DAY) -> Decision:
    request = CellRequest(
        cell=f"META|{day}|0",
        ticker="META",
        session=day,
        trial=0,
        generation=0,
        benchmark="^GSPC",
        own_lessons=lessons,
    )
    return pipeline.decide(request, view(cache, day))


def pipeline_of(method: str | None = None, model: str = "rulebook-1") -> Pipeline:
    spec = ModelSpec(model=model, structured_method=method)
    chat = create_model(spec, api_key=None)
    return Pipeline(PipelineSettings(), Models(quick=chat, deep=chat))


def test_a_cell_quotes_the_figures_of_its_day_and_is_rated_by_them(cache: ViewCache) -> None:
    decision = decide(cache, pipeline_of())
    assert (decision.rating, decision.source, decision.degraded) == ("Buy", "structured", False)
    report = decision.state["market_report"]
    assert "Market report on FB (Facebook, Inc.)" in report
    assert "\nclose: 190.28\n" in report
    assert "get_stock_data: 31 rows" in report
    assert report.count("get_indicators (") == 5
    assert "close 190.28 is above close_200_sma" in decision.state["investment_plan"]
    for field in ("news_report", "fundamentals_report", "sentiment_report"):
        assert "not available" in decision.state[field]


@pytest.mark.parametrize(
    ("method", "source"),
    [
        ("function_calling", "structured"),
        ("json_mode", "structured"),
        ("none", "declared_line"),
    ],
)
def test_every_way_of_asking_for_a_decision_gives_the_same_one(
    cache: ViewCache, method: str, source: str
) -> None:
    asked = decide(cache, pipeline_of(method))
    by_schema = decide(cache, pipeline_of())
    assert (asked.rating, asked.source) == (by_schema.rating, source)
    if source == "structured":
        assert asked.typed == by_schema.typed


def test_without_the_recording_layer_the_model_decides_the_same(cache: ViewCache) -> None:
    bare = RulebookChatModel()
    decision = decide(cache, Pipeline(PipelineSettings(), Models(quick=bare, deep=bare)))
    assert decision.typed == decide(cache, pipeline_of()).typed


def test_more_debate_rounds_answer_the_other_side_and_leave_the_rating(cache: ViewCache) -> None:
    chat = create_model(ModelSpec(), api_key=None)
    settings = PipelineSettings(max_debate_rounds=2, max_risk_discuss_rounds=2)
    decision = decide(cache, Pipeline(settings, Models(quick=chat, deep=chat)))
    assert decision.rating == "Buy"
    debate = json.loads(decision.state["investment_debate_state"])
    assert "The bear has not spoken yet." in debate["bull_history"]
    assert "The bear names no figure, so there is none to answer." in debate["bull_history"]


def test_two_lost_calls_on_this_side_lower_the_real_decision_by_one_tier(cache: ViewCache) -> None:
    lost = Lesson(
        symbol="FB",
        session=date(2018, 1, 12),
        rating="Buy",
        horizon=5,
        raw_return=-0.02,
        alpha=-0.03,
        benchmark="^GSPC",
        decision="**Rating**: Buy",
        reflection="It was against the call.",
    )
    assert decide(cache, pipeline_of(), lost).rating == "Buy"
    assert decide(cache, pipeline_of(), lost, lost).rating == "Overweight"
    assert decide(cache, pipeline_of(model="rulebook-1-plain"), lost, lost).rating == "Buy"


def test_all_five_tiers_occur_over_the_weeks_of_2018(cache: ViewCache) -> None:
    """Rating by rating, without lessons; the counts change only with the rules or the data."""
    tiers: Counter[str] = Counter()
    for day in grid_sessions(NEW_YORK, "weekly", date(2018, 1, 1), date(2018, 12, 31)):
        seen_on = view(cache, day)
        for symbol in SYMBOLS:
            arguments = json.dumps({"symbol": symbol})
            answer = run_tool(seen_on, "get_verified_market_snapshot", arguments)
            figures = read_figures(answer.text)
            assert assess(figures).missing == ()
            tiers[volatility_rule(assess(figures).rating, figures).rating] += 1
    assert tiers == {"Sell": 20, "Underweight": 46, "Hold": 74, "Overweight": 78, "Buy": 94}
