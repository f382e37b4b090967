"""The demo on the committed snapshot: a known table, and the golden run of the results version."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from backtester.api import Run, run
from backtester.cli.demo import DEMO
from backtester.config import RunConfig
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RESULTS_VERSION
from backtester.walk.plan import cache_folder
from scripts.write_cookbook import COOKBOOK, RECIPE, answered

pytestmark = pytest.mark.slow

# A change that moves the root gives other numbers, prompts or ratings for the same configuration:
# write it under "Results change" in CHANGELOG.md, raise RESULTS_VERSION, and pin both here.
GOLDEN = (2, "cad7bf8b79456cb80319328b689438a03e145e0c61008f479cd1ee3c65b87699")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("demo")
    return run(RunConfig(**DEMO, data_dir=place / "data", reports_dir=place / "reports"))


def test_the_root_is_the_golden_one_of_this_results_version(demo: Run) -> None:
    assert (RESULTS_VERSION, demo.root) == GOLDEN


def test_a_year_of_six_tickers_has_312_cells_of_which_six_wait_for_data(demo: Run) -> None:
    assert len(demo.ledger.cells) == 312
    assert Counter(cell.status for cell in demo.ledger.cells.values()) == {"done": 312}
    states = Counter(returned.status for returned in demo.ledger.returns.values())
    assert states == {"resolved": 306, "pending": 6}


def test_all_five_tiers_occur(demo: Run) -> None:
    ratings = Counter(cell.rating for cell in demo.ledger.cells.values())

    assert ratings == {"Sell": 19, "Underweight": 44, "Hold": 86, "Overweight": 74, "Buy": 89}


def test_every_row_names_the_price_index_that_it_is_held_against(demo: Run) -> None:
    rows = demo.sql("SELECT DISTINCT benchmark, benchmark_source, benchmark_basis FROM returns")

    assert rows.values.tolist() == [["^GSPC", "explicit", "price"]]


def test_a_hand_worked_row(demo: Run) -> None:
    """Apple bought at the open of 2018-01-08 and held to the close of 2018-01-12, no dividend.

    The bars of the snapshot: open 174.35, close 177.09. The index opened at 2742.67 on 01-08 and
    closed at 2786.24 on 01-12.
    """
    rows = demo.sql(
        "SELECT entry_session, entry_price, exit_session, exit_price, raw_total, alpha "
        "FROM returns WHERE ticker = 'AAPL' AND session = '2018-01-05'"
    )

    row = rows.iloc[0]
    assert (str(row["entry_session"])[:10], str(row["exit_session"])[:10]) == (
        "2018-01-08",
        "2018-01-12",
    )
    assert (row["entry_price"], row["exit_price"]) == (174.35, 177.09)
    assert row["raw_total"] == pytest.approx(177.09 / 174.35 - 1, abs=1e-15)
    index = 2786.24 / 2742.67 - 1
    assert row["alpha"] == pytest.approx(177.09 / 174.35 - 1 - index, abs=1e-4)


def test_a_prompt_holds_lessons_of_two_tickers_by_the_names_of_the_day(demo: Run) -> None:
    cell = next(
        cell
        for key, cell in sorted(demo.ledger.cells.items())
        if key.ticker == "META" and len({name.split("|")[0] for name in cell.lessons_shown}) > 2
    )
    call = next(call for call in cell.calls if call.node == "Portfolio Manager")
    record = ReplyCache.open(cache_folder(Path(demo.data_dir))).get(call.key)

    assert record is not None
    assert "Instrument: FB (Facebook, Inc.)" in record.request
    assert "META" not in record.request
    others = {name.split("|")[0] for name in cell.lessons_shown} - {"META"}
    assert all(f" | {ticker} | " in record.request for ticker in others)


def test_the_first_lines_count_what_was_not_read(demo: Run) -> None:
    counts = demo.sql("SELECT * FROM alpha_by_rating ORDER BY rating")

    assert list(counts["rating"].astype(str)) == [
        "Sell",
        "Underweight",
        "Hold",
        "Overweight",
        "Buy",
        "unread",
    ]
    assert counts["n"].tolist() == [19, 44, 86, 74, 89, 0]


def test_the_readme_shows_this_very_run(demo: Run) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")

    assert readme.count(str(demo.root)) == 3
    assert f"run {demo.run_id}: 312 cells" in readme


def test_the_cookbook_shows_what_this_very_run_answers(demo: Run) -> None:
    text = COOKBOOK.read_text(encoding="utf-8")

    assert len(RECIPE.findall(text)) == text.count("```sql") == 20
    # After a change of results: python scripts/write_cookbook.py DATABASE, on a demo of its own.
    assert answered(text, demo.folder.path.parent / "results.duckdb") == text


def test_the_book_is_paid_for_and_measured_against_simple_ones(demo: Run) -> None:
    rows = demo.sql(
        "SELECT book, total_return FROM book_performance WHERE run_id = $run_id AND "
        "book IN ('ratings', 'buy_and_hold', 'equal_weight') ORDER BY book"
    )
    assert rows["book"].tolist() == ["buy_and_hold", "equal_weight", "ratings"]
    assert rows["total_return"].notna().all()
    band = demo.sql("SELECT * FROM placebo_band WHERE metric = 'total_return'").iloc[0]
    assert band["low"] < band["median"] < band["high"]
    assert band["draws"] == 200
