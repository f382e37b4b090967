"""The rulebook's fundamentals report: figures as the tools gave them, and a year's change."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from tradingagents_core.llm.rulebook_prompt import Prompt, ToolAnswer
from tradingagents_core.llm.rulebook_statements import key_figures, newest_period
from tradingagents_core.llm.rulebook_texts import fundamentals_report

KEY_FIGURES = """\
# Key figures of AAPL (Apple Inc.), NASDAQ, in USD, seen on 2018-06-29
close: 185.11
# From statements on file, each figure with its days; shares on the basis of this date
market_cap: 909841195180 USD (close 185.11 of 2018-06-29 x 4915138000 shares as of 2018-04-20)
trailing_pe: 17.868
forward_pe: withheld, it needs estimates of analysts, which no table holds"""
NO_STATEMENTS = """\
# Key figures of AMZN (Amazon.com, Inc.), NASDAQ, in USD, seen on 2018-06-29
close: 1699.80
# Withheld: the snapshot has no statements of AMZN: two companies were asked for
market_cap: withheld
trailing_pe: withheld"""
INCOME = """\
# Income statements of AAPL (Apple Inc.), quarters, seen on 2018-06-29
period_end,2018-03-31,2017-12-30,2017-04-01
newest_filing,10-Q public since 2018-05-02 20:32 UTC,10-Q public since 2018-02-02,10-Q public
revenue [USD],61137000000,88293000000,52896000000
research_and_development [USD],3378000000,3407000000,2776000000 derived
operating_income [USD],15894000000,26274000000,-1
interest_expense [USD],792000000,734000000,
other [USD],,1,2"""


def test_key_figures_are_quoted_and_what_is_withheld_is_said_once_with_its_reason() -> None:
    assert key_figures(KEY_FIGURES) == [
        "close: 185.11",
        (
            "market_cap: 909841195180 USD (close 185.11 of 2018-06-29 x 4915138000 shares as of "
            "2018-04-20)"
        ),
        "trailing_pe: 17.868",
        "withheld: forward_pe (it needs estimates of analysts, which no table holds)",
    ]
    assert key_figures(NO_STATEMENTS) == [
        "close: 1699.80",
        (
            "withheld: market_cap, trailing_pe (the snapshot has no statements of AMZN: two "
            "companies were asked for)"
        ),
    ]


def test_a_statements_newest_period_is_held_against_the_one_a_year_before() -> None:
    # 61,137 / 52,896 = 1.15580 and 3,378 / 2,776 = 1.21686.
    assert newest_period(INCOME) == [
        "newest period: to 2018-03-31",
        "newest filing of it: 10-Q public since 2018-05-02 20:32 UTC",
        "revenue [USD]: 61137000000, +15.6 % from 52896000000 on 2017-04-01",
        (
            "research_and_development [USD]: 3378000000, +21.7 % from 2776000000 derived on "
            "2017-04-01"
        ),
        # From a loss there is no rate of growth.
        "operating_income [USD]: 15894000000, -1 on 2017-04-01",
        "interest_expense [USD]: 792000000",
    ]


@pytest.mark.parametrize(
    "answer",
    ["", "# nothing", "period_end", "period_end,soon\nrevenue,1", "revenue,1,2", "period_end,\n"],
)
def test_what_is_no_table_of_periods_gives_no_figure(answer: str) -> None:
    assert newest_period(answer) == []


def test_a_line_of_another_width_is_left_out() -> None:
    assert newest_period("period_end,2018-03-31\nrevenue [USD],1,2\nequity [USD],3") == [
        "newest period: to 2018-03-31",
        "equity [USD]: 3",
    ]


def test_the_report_lists_what_each_tool_gave_and_gives_no_point() -> None:
    report = fundamentals_report(
        Prompt(
            role="Fundamentals Analyst",
            date="2018-06-29",
            instrument="AAPL (Apple Inc.)",
            benchmark="^GSPC",
            blocks={},
            tools=(
                ToolAnswer(name="get_fundamentals", args={}, text=KEY_FIGURES),
                ToolAnswer(name="get_income_statement", args={}, text=INCOME),
                ToolAnswer(name="get_cashflow", args={}, text="DATA_UNAVAILABLE: not on file"),
            ),
        )
    )
    assert report.startswith("Fundamentals report on AAPL (Apple Inc.), as of 2018-06-29.\n\n")
    assert "get_cashflow: not available (not on file)" in report
    assert report.endswith(
        "2 of 3 tools answered. The rulebook has no rule for these texts: they are reported and "
        "give no point."
    )
    lists = [token for token in MarkdownIt("commonmark").parse(report) if token.type == "inline"]
    assert "trailing_pe: 17.868" in {token.content for token in lists}
    assert "\n\n\n" not in report
