"""The report tree has the seeds' folders and files, and no text changes its shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from backtester.errors import DataError, UsageError
from backtester.texts.report import save_reports, sections, write_report_tree
from tests.core.scripted_cast import (
    DECISION_TEXT,
    PROPOSAL_TEXT,
    Cast,
    cell,
    fixed_view,
    pipeline,
)
from tests.support.states import DEBATE, RISK, make_state
from tradingagents_core.topology import ANALYSTS, AnalystRow

# Every file of the tree with the text that `make_state` gives it.
FILES = {
    "1_analysts/market.md": "Trend is up.",
    "1_analysts/sentiment.md": "Mixed.",
    "1_analysts/news.md": "Quiet.",
    "1_analysts/fundamentals.md": "Sound.",
    "2_research/bull.md": "Bull Analyst: up",
    "2_research/bear.md": "Bear Analyst: down",
    "2_research/manager.md": "**Recommendation**: Overweight",
    "3_trading/trader.md": "**Action**: Buy\n\nFINAL TRANSACTION PROPOSAL: **BUY**",
    "4_risk/aggressive.md": "Aggressive Analyst: more",
    "4_risk/conservative.md": "Conservative Analyst: less",
    "4_risk/neutral.md": "Neutral Analyst: half",
    "5_portfolio/decision.md": "**Rating**: Buy",
}
COMPLETE = """\
# Trading Analysis Report: FB, 2018-06-29

FB (Facebook, Inc.), NASDAQ, quoted in USD

## I. Analyst Team Reports

### Market Analyst

Trend is up.

### Sentiment Analyst

Mixed.

### News Analyst

Quiet.

### Fundamentals Analyst

Sound.

## II. Research Team Decision

### Bull Researcher

Bull Analyst: up

### Bear Researcher

Bear Analyst: down

### Research Manager

**Recommendation**: Overweight

## III. Trading Team Plan

### Trader

**Action**: Buy

FINAL TRANSACTION PROPOSAL: **BUY**

## IV. Risk Management Team Decision

### Aggressive Analyst

Aggressive Analyst: more

### Conservative Analyst

Conservative Analyst: less

### Neutral Analyst

Neutral Analyst: half

## V. Portfolio Manager Decision

### Portfolio Manager

**Rating**: Buy
"""


def tree(folder: Path) -> dict[str, str]:
    """Return every file below a folder with its text."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_every_role_has_its_file_and_the_complete_report_has_them_all(tmp_path: Path) -> None:
    path = write_report_tree(make_state(), tmp_path / "r")
    assert path == tmp_path / "r" / "complete_report.md"
    expected = {name: text + "\n" for name, text in FILES.items()}
    assert tree(tmp_path / "r") == {**expected, "complete_report.md": COMPLETE}


def test_debates_may_come_as_objects_too(tmp_path: Path) -> None:
    state: dict[str, object] = {**make_state()}
    state["investment_debate_state"] = DEBATE
    state["risk_debate_state"] = RISK
    assert write_report_tree(state, tmp_path).read_text() == COMPLETE


def test_equal_states_give_equal_bytes(tmp_path: Path) -> None:
    write_report_tree(make_state(), tmp_path / "one")
    write_report_tree(make_state(), tmp_path / "two")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_who_was_not_asked_has_no_file_and_no_heading(tmp_path: Path) -> None:
    state = make_state(sentiment_report="", news_report="", fundamentals_report="")
    complete = write_report_tree(state, tmp_path).read_text()
    assert [path.name for path in (tmp_path / "1_analysts").iterdir()] == ["market.md"]
    assert "### Sentiment Analyst" not in complete


def test_a_team_in_which_nobody_spoke_has_no_section(tmp_path: Path) -> None:
    state = make_state(trader_investment_plan="", risk_debate_state="", final_trade_decision="")
    complete = write_report_tree(state, tmp_path).read_text()
    assert "## II." in complete
    assert not {"3_trading", "4_risk", "5_portfolio"} & {path.name for path in tmp_path.iterdir()}
    assert "## III." not in complete
    assert "## V." not in complete


def test_a_tree_is_replaced_and_the_files_of_others_stay(tmp_path: Path) -> None:
    write_report_tree(make_state(), tmp_path)
    (tmp_path / "1_analysts" / "notes.md").write_text("mine")
    write_report_tree(make_state(news_report="", market_report="Down."), tmp_path)
    files = tree(tmp_path)
    assert "1_analysts/news.md" not in files
    assert files["1_analysts/market.md"] == "Down.\n"
    assert files["1_analysts/notes.md"] == "mine"
    assert "Quiet." not in files["complete_report.md"]


def test_a_new_analyst_has_its_file_through_its_row_alone(tmp_path: Path) -> None:
    row = AnalystRow(key="macro", node="Macro Analyst", report_field="macro_report")
    state = make_state(macro_report="Rates rise.")
    complete = write_report_tree(state, tmp_path, analysts=(*ANALYSTS, row)).read_text()
    assert (tmp_path / "1_analysts" / "macro.md").read_text() == "Rates rise.\n"
    assert "### Macro Analyst\n\nRates rise.\n\n## II." in complete


def test_a_report_field_that_is_no_name_gives_no_file() -> None:
    row = AnalystRow(key="x", node="X Analyst", report_field="../x_report")
    with pytest.raises(DataError, match=r"\.\./x_report"):
        sections((row,))


def test_a_report_cannot_forge_the_decision(tmp_path: Path) -> None:
    forged = (
        "Fine.\n\n## V. Portfolio Manager Decision\n\n### Portfolio Manager\n\n**Rating**: Sell"
    )
    hiding = "Fine.\n\n```\n<!--"
    state = make_state(news_report=forged, fundamentals_report=hiding)
    lines = write_report_tree(state, tmp_path).read_text().split("\n")
    assert lines.count("## V. Portfolio Manager Decision") == 1
    assert lines.index("## V. Portfolio Manager Decision") > lines.index("### Neutral Analyst")
    start = lines.index("### Fundamentals Analyst")
    assert lines[start + 2 : start + 8] == ["Fine.", "", "```", "<!--", "```", ""]
    assert (tmp_path / "1_analysts" / "news.md").read_text().startswith("Fine.\n\n##### V.")


HOSTILE = """\
# Trading Analysis Report: FB, 2018-06-29

<h1>V. Portfolio Manager Decision</h1><script>alert(1)</script> \\<b>bold\\</b>

![seen](https://example.org/seen.png)

V. Portfolio Manager Decision
=============================

> ## Quoted
> <!-- ENTRY_END -->

- ## Listed

[2018-06-29 |
FB | Overweight | +1.20% | -0.35% | 5d]: https://example.org/

```
# code
<!-- never closed"""


def test_no_file_of_the_tree_has_a_heading_tag_or_picture_of_a_role(tmp_path: Path) -> None:
    debate = {"bull_history": HOSTILE, "bear_history": HOSTILE}
    risk = dict.fromkeys(("aggressive_history", "conservative_history", "neutral_history"), HOSTILE)
    texts = dict.fromkeys(
        (
            *(row.report_field for row in ANALYSTS),
            *("instrument_context", "investment_plan", "trader_investment_plan"),
            "final_trade_decision",
        ),
        HOSTILE,
    )
    debates = {"investment_debate_state": debate, "risk_debate_state": risk}
    said = {name: json.dumps(value) for name, value in debates.items()}
    write_report_tree(make_state(**texts, **said), tmp_path)
    files = tree(tmp_path)
    assert len(files) == len(FILES) + 1
    for name, text in files.items():
        tokens = MarkdownIt("commonmark").parse(text)
        inner = [child for token in tokens for child in token.children or []]
        kinds = {token.type for token in (*tokens, *inner)}
        assert not {"html_block", "html_inline", "image"} & kinds, name
        shown = [
            "#" * int(token.tag[1]) + " " + tokens[i + 1].content
            for i, token in enumerate(tokens)
            if token.type == "heading_open" and int(token.tag[1]) < 4
        ]
        ours = [line for line in COMPLETE.split("\n") if line.startswith("#")]
        assert shown == (ours if name == "complete_report.md" else []), name


def test_a_role_says_the_same_in_its_own_file_and_in_the_complete_report(tmp_path: Path) -> None:
    complete = write_report_tree(make_state(news_report=HOSTILE), tmp_path).read_text()
    own = (tmp_path / "1_analysts" / "news.md").read_text()
    assert f"### News Analyst\n\n{own}\n### Fundamentals Analyst" in complete


def test_what_steers_a_terminal_or_has_no_encoding_is_replaced(tmp_path: Path) -> None:
    write_report_tree(make_state(market_report="\x1b[2Jup\r\n\ud800 买入"), tmp_path)
    assert (tmp_path / "1_analysts" / "market.md").read_bytes() == "�[2Jup\n� 买入\n".encode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"company_of_interest": ""}, "company_of_interest"),
        ({"company_of_interest": "A/B"}, "company_of_interest"),
        ({"trade_date": "2018-6-29"}, "trade_date"),
        ({"risk_debate_state": "{"}, "risk_debate_state"),
        ({"risk_debate_state": "[1]"}, "risk_debate_state"),
        ({"risk_debate_state": json.dumps({"neutral_history": 1})}, "neutral_history"),
    ],
)
def test_a_state_that_does_not_fit_writes_nothing(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        write_report_tree(make_state(**changes), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_saved_reports_lie_under_ticker_and_date(tmp_path: Path) -> None:
    path = save_reports(make_state(), "META", tmp_path)
    assert path == tmp_path / "META" / "2018-06-29" / "complete_report.md"


@pytest.mark.parametrize("ticker", ["../x", "a/b", "..", ".", "", ".x", "x.", "/tmp", "A B", "A\n"])
def test_no_ticker_leads_out_of_the_folder(ticker: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ticker of the reports"):
        save_reports(make_state(), ticker, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written"):
        write_report_tree(make_state(), tmp_path / "file")


def test_an_old_file_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "1_analysts" / "news.md").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"news\.md .* cannot be removed"):
        write_report_tree(make_state(news_report=""), tmp_path)


@pytest.mark.parametrize("parallel", [False, True])
def test_the_state_of_a_real_decision_fills_the_whole_tree(parallel: bool, tmp_path: Path) -> None:
    state = pipeline(Cast(), analysts_parallel=parallel).decide(cell(), fixed_view()).state
    write_report_tree(state, tmp_path)
    files = tree(tmp_path)
    assert set(files) == {*FILES, "complete_report.md"}
    assert files["3_trading/trader.md"] == PROPOSAL_TEXT + "\n"
    assert files["5_portfolio/decision.md"] == DECISION_TEXT + "\n"
    headings = [line for line in files["complete_report.md"].split("\n") if line.startswith("## ")]
    assert headings == [line for line in COMPLETE.split("\n") if line.startswith("## ")]
