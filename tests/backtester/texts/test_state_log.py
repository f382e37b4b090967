"""The state log has the seeds' place, name and fields, and loses nothing of the state."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import get_type_hints

import pytest

from backtester.errors import DataError, UsageError
from backtester.texts.state_log import DEBATES, FIELDS, state_log_folder, write_state_log
from tests.core.scripted_cast import DECISION_TEXT, Cast, cell, fixed_view, pipeline
from tests.support.states import DEBATE, RISK, make_state
from tradingagents_core.state import AgentState
from tradingagents_core.topology import INVEST_DEBATE, RISK_DEBATE

DAY = date(2018, 6, 29)


def test_the_log_holds_every_field_under_its_name(tmp_path: Path) -> None:
    path = write_state_log(make_state(past_context="Earlier."), tmp_path, DAY)
    assert path == tmp_path / "full_states_log_2018-06-29.json"
    proposal = "**Action**: Buy\n\nFINAL TRANSACTION PROPOSAL: **BUY**"
    assert json.loads(path.read_bytes()) == {
        "company_of_interest": "FB",
        "trade_date": "2018-06-29",
        "asset_type": "stock",
        "instrument_context": "FB (Facebook, Inc.), NASDAQ, quoted in USD",
        "past_context": "Earlier.",
        "market_report": "Trend is up.",
        "sentiment_report": "Mixed.",
        "news_report": "Quiet.",
        "fundamentals_report": "Sound.",
        "investment_debate_state": DEBATE,
        "investment_plan": "**Recommendation**: Overweight",
        "trader_investment_plan": proposal,
        "trader_investment_decision": proposal,
        "risk_debate_state": RISK,
        "final_trade_decision": "**Rating**: Buy",
    }


def test_no_field_of_the_state_is_forgotten() -> None:
    assert set(get_type_hints(AgentState)) - {"messages"} == set(FIELDS) - {
        "trader_investment_decision"
    }
    assert set(DEBATES) == {INVEST_DEBATE.state_field, RISK_DEBATE.state_field}


def test_the_report_of_a_further_analyst_is_kept(tmp_path: Path) -> None:
    path = write_state_log(make_state(macro_report="Rates rise."), tmp_path, DAY)
    assert json.loads(path.read_bytes())["macro_report"] == "Rates rise."


def test_the_file_lies_where_readers_of_such_logs_look(tmp_path: Path) -> None:
    folder = state_log_folder(tmp_path, "FB")
    assert folder == tmp_path / "FB" / "TradingAgentsStrategy_logs"
    assert write_state_log(make_state(), folder, DAY).parent == folder


def test_two_tickers_and_two_trials_of_a_day_have_files_of_their_own(tmp_path: Path) -> None:
    paths = {
        write_state_log(
            make_state(company_of_interest=ticker), state_log_folder(tmp_path, ticker), DAY, trial=k
        )
        for ticker in ("FB", "NVDA")
        for k in (0, 1)
    }
    assert len(paths) == 4
    assert (
        tmp_path / "FB" / "TradingAgentsStrategy_logs" / ("full_states_log_2018-06-29_trial1.json")
        in paths
    )


def test_equal_states_give_equal_bytes_whatever_their_order(tmp_path: Path) -> None:
    one = write_state_log(make_state(b_report="b", a_report="a"), tmp_path / "one", DAY)
    backwards = dict(reversed(make_state(a_report="a", b_report="b").items()))
    two = write_state_log(backwards, tmp_path / "two", DAY)
    assert one.read_bytes() == two.read_bytes()


def test_any_text_of_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    text = 'quote " \\ \x00 \x1b \u2028 买入 🚀 \ud800 {"rating": "Sell"} \U000e0041 \xa0\u3000'
    path = write_state_log(make_state(market_report=text), tmp_path, DAY)
    found = path.read_text(encoding="utf-8")
    assert json.loads(found)["market_report"] == text
    assert "买入 🚀" in found
    assert "\xa0\u3000" in found


@pytest.mark.parametrize("field", ["market_report", "investment_debate_state"])
def test_nothing_in_the_file_steers_a_terminal_or_ends_a_line(field: str, tmp_path: Path) -> None:
    steering = [*map(chr, (*range(0x20), *range(0x7F, 0xA0))), *"\u2028\u2029\ufeff\u061c"]
    steering += map(chr, (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
    text = "".join(steering)
    said = json.dumps({**DEBATE, "history": text}) if field in DEBATES else text
    path = write_state_log(make_state(**{field: said}), tmp_path, DAY)
    found = path.read_text(encoding="utf-8")
    logged = json.loads(found)[field]
    assert (logged["history"] if field in DEBATES else logged) == text
    assert not set(steering) - {"\n"} & set(found)
    assert found.splitlines() == found.rstrip("\n").split("\n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trade_date": "2018-06-28"}, "2018-06-28"),
        ({"trade_date": "soon"}, "trade_date"),
        ({"company_of_interest": "../FB"}, "company_of_interest"),
        ({"investment_debate_state": "not JSON"}, "investment_debate_state"),
    ],
)
def test_a_state_that_does_not_fit_is_an_error(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        write_state_log(make_state(**changes), tmp_path / "logs", DAY)
    assert not (tmp_path / "logs").exists()


def test_no_ticker_leads_out_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ticker of the state log"):
        state_log_folder(tmp_path, "../FB")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written"):
        write_state_log(make_state(), tmp_path / "file", DAY)


@pytest.mark.parametrize("parallel", [False, True])
def test_the_state_of_a_real_decision_is_logged_whole(parallel: bool, tmp_path: Path) -> None:
    state = pipeline(Cast(), analysts_parallel=parallel).decide(cell(), fixed_view()).state
    logged = json.loads(write_state_log(state, tmp_path, DAY).read_bytes())
    assert tuple(logged) == FIELDS
    assert logged["final_trade_decision"] == DECISION_TEXT
    assert logged["investment_debate_state"]["count"] == 2
    assert logged["risk_debate_state"]["count"] == 3
