"""What the views answer: exact, in order, every kind of row counted, nothing chained."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtester.errors import DataError
from backtester.store.publishing import rating_rows, run_document, run_summary, schema_document
from backtester.store.terms import macro_statements
from tests.support.records import (
    CUTOFF,
    make_call,
    make_cell,
    make_key,
    make_lesson,
    make_return,
    make_spend,
)
from tests.support.records import make_read as read_of
from tests.support.results import Call, make_document, make_run, published, rated, rows_of

RATING_TABLE = (
    Call(rating="Buy", ret=0.04, bench=0.01),
    Call(rating="Buy", ret=-0.02, bench=0.01),
    Call(rating="Overweight", ret=0.03, bench=0.03),
    Call(rating="Hold", ret=0.02, bench=-0.01),
    Call(rating="Underweight", ret=-0.05, bench=0.01),
    Call(rating="Sell", ret=-0.04, bench=-0.01),
    Call(rating="Sell", ret=0.06, bench=0.01),
    Call(rating=None, ret=0.01, bench=-0.01),
    Call(rating="Hold", ret=None),
)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "results.duckdb"


@pytest.fixture
def table(database: Path) -> Path:
    return published(database, rated("run-a", RATING_TABLE))


@pytest.mark.parametrize(
    ("kind", "relation"),
    [("rating", "cells"), ("rating_row", "scored_decisions"), ("rating_row", "alpha_by_rating")],
)
def test_ratings_compare_as_the_schema_says(table: Path, kind: str, relation: str) -> None:
    found = re.search(rf"where it is {kind}, write (.*?)[;.] ", schema_document())
    assert found is not None
    typed = rows_of(table, f"SELECT DISTINCT typeof(rating) AS typed FROM {relation}")
    assert [("'unread'" in row["typed"]) for row in typed] == [kind == "rating_row"]
    for form in (found[1], "rating_rank > 0"):
        query = f"SELECT DISTINCT rating FROM {relation} WHERE {form} ORDER BY rating"
        assert [row["rating"] for row in rows_of(table, query)] == ["Overweight", "Buy"]


# --------------------------------------------------------------------------------- exact sums


def test_four_small_alphas_keep_the_sign_of_their_mean(database: Path) -> None:
    alphas = (0.0004, 0.0004, 0.0004, -0.0006)
    published(
        database, rated("run-a", [Call(rating="Buy", ret=alpha, bench=0.0) for alpha in alphas])
    )
    assert rating_rows(database, "run-a")[4].mean_alpha == 0.00015


@pytest.fixture(scope="module")
def functions() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    for statement in macro_statements():
        connection.execute(statement)
    return connection


def _measured(
    connection: duckdb.DuckDBPyConnection, values: list[float | None]
) -> tuple[float | None, float | None, float | None]:
    query = (
        "SELECT exact_sum(x), exact_mean(x), exact_stddev(x) FROM (SELECT unnest(?::DOUBLE[]) x)"
    )
    return connection.execute(query, [values]).fetchall()[0]


def test_sums_do_not_depend_on_the_order_of_rows_or_the_number_of_threads(
    functions: duckdb.DuckDBPyConnection,
) -> None:
    found = set()
    for threads, order in itertools.product((1, 2, 4), ("i", "-i", "hash(i)", "hash(i + 7)")):
        functions.execute(f"SET threads={threads}")
        functions.execute(
            "CREATE OR REPLACE TABLE many AS SELECT sin(i) / 100 AS x, i % 7 AS g "
            f"FROM range(60000) t(i) ORDER BY {order}"
        )
        query = "SELECT g, exact_sum(x), exact_mean(x), exact_stddev(x) FROM many GROUP BY g"
        found.add(tuple(sorted(functions.execute(query).fetchall())))
    assert len(found) == 1


@given(st.lists(st.floats(-10, 10, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-6)))
def test_sum_mean_and_deviation_agree_with_the_standard_library(
    functions: duckdb.DuckDBPyConnection, values: list[float]
) -> None:
    total, mean, deviation = _measured(functions, list(values))
    if not values:
        assert (total, mean, deviation) == (None, None, None)
        return
    assert total == pytest.approx(math.fsum(values), rel=1e-12, abs=1e-15)
    assert mean == pytest.approx(statistics.fmean(values), rel=1e-12, abs=1e-15)
    if len(values) < 2:
        assert deviation is None
    else:
        assert deviation == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("scale", [1e-7, 1e-3, 1.0, 1e6])
def test_a_deviation_is_exact_at_every_scale(
    functions: duckdb.DuckDBPyConnection, scale: float
) -> None:
    # Sample deviation of 1, 2, 3, 4: sqrt(5 / 3).
    deviation = _measured(functions, [scale * n for n in (1, 2, 3, 4)])[2]
    assert deviation == pytest.approx(scale * 1.2909944487358056, rel=1e-9)


def test_null_is_left_out_of_sums_and_equal_values_have_no_deviation(
    functions: duckdb.DuckDBPyConnection,
) -> None:
    assert _measured(functions, [None, 0.25, None, 0.25]) == (0.5, 0.25, 0.0)
    assert _measured(functions, [None, 0.25]) == (0.25, 0.25, None)
    assert _measured(functions, [None]) == (None, None, None)


# ------------------------------------------------------------------------------ rating table


def test_the_rating_table_runs_from_sell_to_buy_with_the_unread_row_apart(table: Path) -> None:
    rows = {row.rating: row for row in rating_rows(table, "run-a")}
    assert list(rows) == ["Sell", "Underweight", "Hold", "Overweight", "Buy", "unread"]
    found = {
        name: (row.n, row.resolved, row.mean_return, row.mean_alpha) for name, row in rows.items()
    }
    near = pytest.approx
    assert found == {
        "Sell": (2, 2, near(0.01, abs=1e-15), near(0.01, abs=1e-15)),
        "Underweight": (1, 1, near(-0.05, abs=1e-15), near(-0.06, abs=1e-15)),
        "Hold": (2, 1, near(0.02, abs=1e-15), near(0.03, abs=1e-15)),
        "Overweight": (1, 1, near(0.03, abs=1e-15), 0.0),
        "Buy": (2, 2, near(0.01, abs=1e-15), near(0.0, abs=1e-15)),
        "unread": (1, 1, near(0.01, abs=1e-15), near(0.02, abs=1e-15)),
    }
    assert rows["Hold"].pending == 1
    # Deviation of alphas -0.03 and 0.05: 0.08 / sqrt(2).
    assert rows["Sell"].stddev_alpha == pytest.approx(0.08 / math.sqrt(2), rel=1e-12)


def test_sql_gives_the_rating_table_in_the_same_order(table: Path) -> None:
    rows = rows_of(table, "SELECT rating, n FROM alpha_by_rating ORDER BY rating")
    assert [(row["rating"], row["n"]) for row in rows] == [
        ("Sell", 2),
        ("Underweight", 1),
        ("Hold", 2),
        ("Overweight", 1),
        ("Buy", 2),
        ("unread", 1),
    ]


def test_calls_that_take_a_side_are_counted_over_all_ratings(table: Path) -> None:
    # Buy 0.03 and -0.03, Overweight 0, Underweight -(-0.06), Sell -(-0.03) and -(0.05).
    summary = run_summary(table, "run-a")
    assert summary.n_directional == 6
    assert summary.mean_directional_alpha == pytest.approx(0.04 / 6, abs=1e-15)
    assert (summary.right_calls, summary.exact_zeros, summary.hit_rate) == (3, 1, 0.5)


def test_the_hit_rate_counts_a_tie_as_a_miss_on_its_side(table: Path) -> None:
    query = "SELECT side, n, right_calls, exact_zeros, wrong_calls, hit_rate FROM hit_rate"
    rows = {row.pop("side"): row for row in rows_of(table, query)}
    assert [tuple(rows[side].values()) for side in ("all", "long", "short")] == [
        (6, 3, 1, 2, 0.5),
        (3, 1, 1, 1, 1 / 3),
        (3, 2, 0, 1, 2 / 3),
    ]


def test_hold_and_unread_take_no_side(table: Path) -> None:
    rows = {row.rating: row for row in rating_rows(table, "run-a")}
    for name in ("Hold", "unread"):
        assert rows[name].n_directional == 0
        assert rows[name].mean_directional_alpha is None
        assert rows[name].hit_rate is None
        assert rows[name].mean_alpha is not None


def test_the_summary_counts_every_cell_and_gives_the_equal_weight_return(table: Path) -> None:
    summary = run_summary(table, "run-a")
    assert (summary.cells, summary.done, summary.unread, summary.failed) == (9, 8, 1, 0)
    assert (summary.n, summary.resolved, summary.pending) == (9, 8, 1)
    # Returns .04 -.02 .03 .02 -.05 -.04 .06 .01, benchmarks .01 .01 .03 -.01 .01 -.01 .01 -.01.
    assert summary.equal_weight_return == pytest.approx(0.05 / 8, abs=1e-15)
    assert summary.benchmark_return == pytest.approx(0.04 / 8, abs=1e-15)
    assert (summary.benchmark, summary.benchmark_basis) == ("^GSPC", "price")
    assert (summary.horizon, summary.entry_rule) == (5, "next_open")
    assert summary.results_root == "b" * 64


def test_a_rating_that_was_never_given_has_a_row_of_zeros(database: Path) -> None:
    published(database, rated("run-a", [Call(rating="Hold", ret=0.01, bench=0.0)] * 3))
    rows = rating_rows(database, "run-a")
    assert [(row.rating, row.n) for row in rows] == [
        ("Sell", 0),
        ("Underweight", 0),
        ("Hold", 3),
        ("Overweight", 0),
        ("Buy", 0),
        ("unread", 0),
    ]
    assert rows[4].mean_return is None


def test_a_run_without_a_cell_yet_has_a_table_of_zeros(database: Path) -> None:
    published(database, make_document())
    assert [row.n for row in rating_rows(database, "run-a")] == [0] * 6
    summary = run_summary(database, "run-a")
    assert (summary.cells, summary.n, summary.mean_return, summary.benchmark) == (
        0,
        0,
        None,
        "none",
    )
    assert (summary.horizon, summary.entry_rule) == (5, "next_open")


def test_every_state_of_a_cell_is_counted_and_only_scored_decisions_are_measured(
    database: Path,
) -> None:
    states = ("done", "unread", "failed", "no_data", "skipped_budget", "done")
    keys = [make_key(f"T{number}") for number in range(len(states))]
    cells = [
        make_cell(
            key,
            status=status,
            rating="Buy" if status == "done" else None,
            scored=key.ticker != "T5",
            degraded=status == "no_data",
        )
        for key, status in zip(keys, states, strict=True)
    ]
    published(database, make_document(cells=cells, returns=[make_return(key) for key in keys]))
    summary = run_summary(database, "run-a")
    assert (summary.cells, summary.done, summary.unread, summary.failed) == (6, 2, 1, 1)
    assert (summary.no_data, summary.skipped_budget, summary.degraded) == (1, 1, 1)
    assert (summary.warmup, summary.n) == (1, 2)
    assert [row.n for row in rating_rows(database, "run-a")] == [0, 0, 0, 0, 1, 1]


def test_every_state_of_a_return_is_counted_and_a_delisted_number_counts(database: Path) -> None:
    nothing = {"raw_total": None, "alpha": None, "directional_alpha": None}
    rows = (
        make_return(make_key("T0")),
        make_return(make_key("T1"), status="pending", **nothing),
        make_return(make_key("T2"), status="missing_bar", **nothing),
        make_return(make_key("T3"), status="conflict", **nothing),
        make_return(make_key("T4"), status="delisted", **nothing),
        make_return(make_key("T5"), status="delisted", raw_total=-0.51),
    )
    cells = [make_cell(make_key(f"T{number}")) for number in range(7)]
    published(database, make_document(cells=cells, returns=rows))
    buy = rating_rows(database, "run-a")[4]
    assert (buy.n, buy.resolved, buy.missing_bar, buy.conflict, buy.delisted) == (7, 1, 1, 1, 2)
    # The seventh cell has no return row yet: it is pending too.
    assert buy.pending == 2
    assert (buy.n_return, buy.mean_return) == (2, pytest.approx(-0.24))


def test_an_unknown_benchmark_leaves_returns_and_no_alpha(database: Path) -> None:
    calls = [Call(rating="Buy", ret=0.02), Call(rating="Buy", ret=0.04)]
    published(database, rated("run-a", calls))
    buy = rating_rows(database, "run-a")[4]
    assert (buy.mean_return, buy.n_return) == (pytest.approx(0.03), 2)
    assert (buy.n_alpha, buy.mean_alpha, buy.n_directional, buy.hit_rate) == (0, None, 0, None)


def test_scores_do_not_mix(database: Path) -> None:
    run = rated("run-a", [Call(rating="Buy", ret=0.02, bench=0.0)])
    longer = [replace(row, score_id="h10", horizon=10, raw_total=0.5) for row in run.returns]
    published(database, replace(run, returns=[*run.returns, *longer]))
    assert rating_rows(database, "run-a")[4].mean_return == 0.02
    assert rating_rows(database, "run-a", score_id="h10")[4].mean_return == 0.5
    assert run_summary(database, "run-a", score_id="h10").horizon == 10
    with pytest.raises(DataError, match="no score 'h20'"):
        run_summary(database, "run-a", score_id="h20")


def test_runs_do_not_mix(database: Path) -> None:
    published(
        database,
        rated("run-a", [Call(rating="Buy", ret=0.02, bench=0.0)]),
        rated("run-b", [Call(rating="Buy", ret=0.04, bench=0.0)]),
    )
    assert rating_rows(database, "run-b")[4].mean_return == 0.04
    with pytest.raises(DataError, match="no run run-c: it holds run-a, run-b"):
        rating_rows(database, "run-c")


def test_by_ticker_and_by_month(database: Path) -> None:
    calls = [
        Call(rating="Buy", ret=0.03, bench=0.01, ticker="AAA", session=date(2018, 1, 26)),
        Call(rating="Sell", ret=0.03, bench=0.01, ticker="AAA", session=date(2018, 2, 2)),
        Call(rating="Buy", ret=-0.01, bench=0.01, ticker="BBB", session=date(2018, 2, 2)),
    ]
    published(database, rated("run-a", calls))
    tickers = rows_of(
        database, "SELECT ticker, n, mean_alpha, hit_rate FROM alpha_by_ticker ORDER BY ticker"
    )
    near = pytest.approx
    assert tickers == [
        {"ticker": "AAA", "n": 2, "mean_alpha": near(0.02), "hit_rate": 0.5},
        {"ticker": "BBB", "n": 1, "mean_alpha": near(-0.02), "hit_rate": 0.0},
    ]
    months = rows_of(database, "SELECT month, n, mean_alpha FROM alpha_by_month ORDER BY month")
    assert months == [
        {"month": date(2018, 1, 1), "n": 1, "mean_alpha": near(0.02)},
        {"month": date(2018, 2, 1), "n": 2, "mean_alpha": near(0.0)},
    ]


# ------------------------------------------------------------------------- overlapping windows

VIEWS_WITH_MEANS = (
    "alpha_by_rating",
    "alpha_by_ticker",
    "alpha_by_month",
    "run_summary",
    "hit_rate",
)


def test_six_overlapping_returns_are_averaged_and_never_chained(database: Path) -> None:
    one = 1.01**5 - 1  # each window of five sessions at 1 % a session: 0.0510101
    first = date(2018, 1, 1)
    cells, returns = [], []
    for k in range(6):
        key = make_key("AAA", (first + timedelta(days=k)).isoformat())
        cells.append(make_cell(key))
        returns.append(
            make_return(
                key,
                entry_rule="close",
                entry_session=key.session,
                exit_session=key.session + timedelta(days=5),
                raw_total=one,
                benchmark_return=0.0,
                alpha=one,
                directional_alpha=one,
            )
        )
    published(database, make_document(cells=cells, returns=returns))
    row = rows_of(database, "SELECT * FROM alpha_by_ticker")[0]
    assert row["n_return"] == 6
    assert row["mean_return"] == pytest.approx(0.0510100501, abs=1e-12)
    # The window of k = 5 begins at the close at which that of k = 0 ends, but k = 1..4 overlap it.
    assert row["overlapping_windows"] == 5
    chained = 1.0510100501**6 - 1
    assert chained == pytest.approx(0.3478489, abs=1e-6)
    for view in VIEWS_WITH_MEANS:
        for found in rows_of(database, f"SELECT * FROM {view}"):
            assert not any("total" in name or "cumulative" in name for name in found)
            numbers = [value for value in found.values() if isinstance(value, float)]
            assert not any(
                abs(value - wrong) < 1e-3 for value in numbers for wrong in (chained, 6 * one)
            )


@pytest.mark.parametrize(
    ("entry_rule", "entry_day", "overlapping"),
    [("next_open", 13, 0), ("next_open", 12, 1), ("close", 12, 0), ("close", 11, 1)],
)
def test_windows_that_meet_at_a_close_do_not_overlap_and_those_that_share_a_day_do(
    database: Path, entry_rule: str, entry_day: int, overlapping: int
) -> None:
    first, second = make_key("AAA", "2018-01-05"), make_key("AAA", "2018-01-11")
    rows = [
        make_return(first, entry_rule=entry_rule),  # ends on 2018-01-12
        make_return(
            second,
            entry_rule=entry_rule,
            entry_session=date(2018, 1, entry_day),
            exit_session=date(2018, 1, 19),
        ),
    ]
    published(database, make_document(cells=[make_cell(first), make_cell(second)], returns=rows))
    assert run_summary(database, "run-a").overlapping_windows == overlapping


def test_windows_of_other_tickers_and_trials_do_not_overlap(database: Path) -> None:
    keys = [make_key("AAA"), make_key("BBB"), make_key("AAA", trial=1)]
    published(
        database,
        make_document(
            cells=[make_cell(key) for key in keys], returns=[make_return(key) for key in keys]
        ),
    )
    assert run_summary(database, "run-a").overlapping_windows == 0


# --------------------------------------------------------------------------- leaks and costs


def _audit(database: Path) -> dict[str, tuple[int, int]]:
    rows = rows_of(database, "SELECT audit, checked, violations FROM leak_audit")
    return {row["audit"]: (row["checked"], row["violations"]) for row in rows}


def test_a_clean_run_has_no_violation_and_says_how_much_was_checked(database: Path) -> None:
    published(database, make_run())
    assert _audit(database) == {"fills": (2, 0), "lessons_shown": (0, 0), "reads": (2, 0)}


def test_an_empty_run_was_checked_on_nothing(database: Path) -> None:
    published(database, make_document())
    assert _audit(database) == {"fills": (0, 0), "lessons_shown": (0, 0), "reads": (0, 0)}


def test_a_read_from_after_the_cutoff_is_a_violation(database: Path) -> None:
    reads = (
        read_of(max_known_at=CUTOFF),
        read_of(max_known_at=CUTOFF + timedelta(microseconds=1)),
        read_of(max_known_at=None, rows=0),
    )
    published(database, make_document(cells=[make_cell(reads=reads)]))
    assert _audit(database)["reads"] == (2, 1)


def test_a_lesson_from_the_future_or_from_nowhere_is_a_violation(database: Path) -> None:
    early = make_lesson(make_key("AAA", "2017-12-22"), resolved_at=CUTOFF)
    late = make_lesson(
        make_key("BBB", "2017-12-29", 1), resolved_at=CUTOFF + timedelta(microseconds=1)
    )
    waiting = make_lesson(make_key("CCC", "2017-12-29"), resolved_at=None, lesson_status="waiting")
    shown = ("AAA|2017-12-22|0", "BBB|2017-12-29|1", "CCC|2017-12-29|0", "DDD|2017-12-22|0")
    published(
        database,
        make_document(cells=[make_cell(lessons_shown=shown)], lessons=[early, late, waiting]),
    )
    assert _audit(database)["lessons_shown"] == (4, 3)


def test_a_lesson_of_another_run_does_not_vouch_for_this_one(database: Path) -> None:
    key = make_key("AAA", "2017-12-22")
    published(
        database,
        make_document("run-a", cells=[make_cell(lessons_shown=(str(key),))]),
        make_document("run-b", lessons=[make_lesson(key, resolved_at=CUTOFF)]),
    )
    rows = rows_of(
        database, "SELECT violations FROM leak_audit WHERE run_id = 'run-a' AND audit LIKE 'l%'"
    )
    assert rows == [{"violations": 1}]


def test_a_fill_at_the_cutoff_is_a_violation_unless_it_is_flagged(database: Path) -> None:
    keys = [make_key(ticker) for ticker in ("AAA", "BBB", "CCC", "DDD")]
    rows = [
        make_return(keys[0], entry_at=CUTOFF),
        make_return(keys[1], entry_at=CUTOFF, flags=("same_bar",)),
        make_return(keys[2], entry_at=CUTOFF + timedelta(microseconds=1)),
        make_return(keys[3], entry_at=None),
    ]
    published(database, make_document(cells=[make_cell(key) for key in keys], returns=rows))
    assert _audit(database)["fills"] == (3, 1)


def test_a_fill_before_the_cutoff_is_a_violation_whatever_its_flags(database: Path) -> None:
    keys = [make_key(ticker) for ticker in ("AAA", "BBB")]
    early = CUTOFF - timedelta(microseconds=1)
    rows = [
        make_return(keys[0], entry_at=early, flags=("same_bar",)),
        make_return(keys[1], entry_at=early),
    ]
    published(database, make_document(cells=[make_cell(key) for key in keys], returns=rows))
    assert _audit(database)["fills"] == (2, 2)


def test_costs_are_summed_by_node_and_unknown_prices_are_counted(database: Path) -> None:
    calls = (
        make_call(cost_usd=0.1, input_tokens=100, output_tokens=10),
        make_call(cost_usd=0.2, input_tokens=200, output_tokens=None, cached_tokens=150),
        make_call(cost_usd=0.0, hit=True, saved_usd=0.3, input_tokens=300, output_tokens=30),
        make_call(cost_usd=None, finish_reason="outcome:length", attempt=1),
        make_call(node="Portfolio Manager", cost_usd=None, input_tokens=None, output_tokens=None),
    )
    published(database, make_document(cells=[make_cell(calls=calls)]))
    rows = rows_of(database, "SELECT * EXCLUDE (run_id) FROM cost_by_node ORDER BY node DESC")
    assert rows[0] == {
        "node": "Trader",
        "calls": 4,
        "hits": 1,
        "outcomes": 1,
        "input_tokens": 610,
        "output_tokens": 45,
        "not_counted": 1,
        "cached_tokens": 150,
        "cost_usd": 0.3,  # sum() over doubles says 0.30000000000000004
        "saved_usd": 0.3,
        "not_priced": 1,
    }
    assert rows[1]["cost_usd"] is None
    assert rows[1]["input_tokens"] is None
    assert rows[1]["not_priced"] == 1


def test_days_are_those_of_the_payment_in_utc_and_lost_calls_count(database: Path) -> None:
    spent = [
        make_spend(paid_at=datetime(2026, 1, 2, 23, 59, tzinfo=UTC), cost_usd=0.1),
        make_spend(paid_at=datetime(2026, 1, 3, 0, 0, tzinfo=UTC), cost_usd=0.2),
        make_spend(paid_at=datetime(2026, 1, 3, 9, 0, tzinfo=UTC), cost_usd=None),
        make_spend(
            paid_at=datetime(2026, 1, 3, 9, 1, tzinfo=UTC), cost_usd=0.1, output_tokens=None
        ),
    ]
    # The spend ledger alone says what was paid: this run has no cell yet.
    published(database, replace(make_document(), spent=spent))
    assert rows_of(database, "SELECT * EXCLUDE (run_id) FROM cost_by_day ORDER BY day") == [
        {
            "day": date(2026, 1, 2),
            "calls": 1,
            "input_tokens": 10,
            "output_tokens": 5,
            "not_counted": 0,
            "cost_usd": 0.1,
            "not_priced": 0,
        },
        {
            "day": date(2026, 1, 3),
            "calls": 3,
            "input_tokens": 30,
            "output_tokens": 10,
            "not_counted": 1,
            "cost_usd": 0.3,
            "not_priced": 1,
        },
    ]


def test_the_cache_saved_what_its_hits_would_have_cost(database: Path) -> None:
    calls = (
        make_call(cost_usd=0.5, saved_usd=0.0, input_tokens=100, output_tokens=10),
        make_call(cost_usd=0.0, saved_usd=0.1, hit=True, input_tokens=300, output_tokens=30),
        make_call(cost_usd=0.0, saved_usd=0.2, hit=True, input_tokens=20, output_tokens=2),
        make_call(cost_usd=0.0, saved_usd=None, hit=True, input_tokens=None, output_tokens=None),
        make_call(node="Reflector", cost_usd=None, saved_usd=0.0),
    )
    published(database, make_document(cells=[make_cell(calls=calls)]))
    rows = rows_of(database, "SELECT * EXCLUDE (run_id) FROM cache_efficiency ORDER BY node DESC")
    assert rows[0] == {
        "node": "Trader",
        "hits": 3,
        "misses": 1,
        "hit_rate": 0.75,
        "saved_usd": 0.3,
        "saved_tokens": 352,
        "made_tokens": 110,
        "not_priced": 1,
    }
    assert (rows[1]["hit_rate"], rows[1]["saved_usd"], rows[1]["made_tokens"]) == (0.0, None, 15)


def test_calls_of_a_lesson_that_was_written_anew_are_kept_beside_those_of_its_cell(
    database: Path,
) -> None:
    failed = make_lesson(lesson_status="failed", lesson="", calls=(make_call(node="Reflector"),))
    document = make_document(cells=[make_cell()], lessons=[make_lesson()])
    document = replace(document, superseded=[make_cell()], superseded_lessons=[failed, failed])
    published(database, document)
    rows = rows_of(
        database,
        "SELECT phase, seq, node FROM llm_calls WHERE phase = 'superseded' ORDER BY seq",
    )
    assert [(row["seq"], row["node"]) for row in rows] == [
        (0, "Trader"),
        (1, "Reflector"),
        (2, "Reflector"),
    ]


def test_the_document_of_a_run_holds_summary_table_audit_and_costs(table: Path) -> None:
    document = run_document(table, "run-a")
    assert list(document) == [
        "summary",
        "ratings",
        "leak_audit",
        "cost_by_node",
        "cost_by_day",
        "cache_efficiency",
        "knowledge",
        "scores",
    ]
    summary, ratings = document["summary"], document["ratings"]
    assert isinstance(summary, dict)
    assert isinstance(ratings, list)
    assert (summary["cells"], len(ratings)) == (9, 6)


def test_a_rating_is_a_number_to_filter_on_in_cells_and_decisions(database: Path) -> None:
    words = ("Sell", "Underweight", "Hold", "Overweight", "Buy", None)
    calls = [Call(rating=word, ret=0.01, bench=0.0) for word in words]
    published(database, rated("run-a", calls))
    ranks = [
        [row["rating_rank"] for row in rows_of(database, f"FROM {name} ORDER BY session")]
        for name in ("cells", "scored_decisions")
    ]
    assert ranks == [[-2, -1, 0, 1, 2, None]] * 2
    above = "SELECT rating FROM scored_decisions WHERE rating_rank > 0 ORDER BY rating"
    assert [row["rating"] for row in rows_of(database, above)] == ["Overweight", "Buy"]
