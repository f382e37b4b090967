"""The figures of a stored score, as SQL gives them, against quantstats, ffn, scipy and pandas.

Other tests here hold single functions against the libraries. Here decisions go in by the command
line and figures come out of the results database; what the libraries are given is the equity and
the returns stored beside them, and the prices of the committed snapshot's own file.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.stats

from backtester.calendar import calendar_by_code
from backtester.cli import run as command
from tests.support.results import rows_of

NEAR = 1e-9
SNAPSHOT = Path(__file__).parents[2] / "data" / "snapshots" / "us-2013-2018"
TICKERS = ("AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA")
RATINGS = ("Sell", "Underweight", "Hold", "Overweight", "Buy")
DAYS = calendar_by_code("XNYS").sessions(date(2017, 7, 3), date(2018, 11, 30))[::5]
RF = 0.02
# Sessions of the New York exchange in 2017 and 2018, as its calendar was published.
K = (251 + 251) / 2

pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Hold one stored score: its rows by table, as SQL gives them."""

    database: Path
    score: str

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return a query's rows; ``{score}`` stands for the score."""
        return rows_of(self.database, query.format(score=f"score_id = '{self.score}'"))

    def figures(self, subject: str, horizon: int | None = None) -> Mapping[str, float]:
        """Return the figures of a book, or of all decisions at a horizon."""
        at = "IS NULL" if horizon is None else f"= {horizon}"
        found = self.rows(
            "SELECT metric, value FROM metrics WHERE {score} AND scope = 'all' "
            f"AND subject = '{subject}' AND horizon {at}"
        )
        return {row["metric"]: row["value"] for row in found}

    def equity(self, book: str) -> pd.DataFrame:
        """Return the equity rows of a book by date."""
        found = self.rows(
            f"SELECT * FROM equity WHERE {{score}} AND book = '{book}' ORDER BY session"
        )
        frame = pd.DataFrame(found)
        return frame.set_index(pd.DatetimeIndex(frame["session"]))

    def returns(self, book: str) -> pd.Series:
        """Return the stored session returns of a book."""
        found: pd.Series = self.equity(book)["ret"].dropna()
        return found


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Import seeded decisions on six tickers every fifth session, and score them with costs."""
    place = tmp_path_factory.mktemp("stored")
    draw = random.Random(5)
    with (place / "d.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["ticker", "date", "rating"])
        table.writerows(
            [ticker, day.isoformat(), draw.choice(RATINGS)] for day in DAYS for ticker in TICKERS
        )
    folders = ["--reports-dir", str(place / "reports")]
    imported = ["import", str(place / "d.csv"), "--snapshot", str(SNAPSHOT), "--benchmark", "^GSPC"]
    assert command([*imported, *folders]) == 0
    costs = ["--commission-bps", "10", "--slippage-bps", "5", "--rf", str(RF), "--placebo", "0"]
    assert command(["score", "latest", *costs, "--data-dir", str(place), *folders]) == 0
    database = place / "reports" / "results.duckdb"
    (score,) = rows_of(database, "SELECT score_id FROM scores WHERE score_id <> 'default'")
    return Stored(database=database, score=score["score_id"])


@pytest.fixture(params=["ratings", "buy_and_hold", "macd:finagent"])
def book(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def index_returns(on: pd.DatetimeIndex) -> pd.Series:
    """Return the index's close to close, from the snapshot's file."""
    bars = pq.read_table(SNAPSHOT / "bars.parquet").to_pandas()
    own = bars[bars["instrument"] == "^GSPC"]
    closes = pd.Series(own["close"].to_numpy(), index=pd.DatetimeIndex(own["session"]))
    found: pd.Series = closes.sort_index().pct_change().loc[on]
    return found


# ------------------------------------------------------------------------------------- the books


def test_quantstats_agrees_on_the_stored_risk_of_a_book(
    qs: ModuleType, stored: Stored, book: str
) -> None:
    found, rows = stored.figures(book), stored.returns(book)
    assert len(rows) > 300
    assert found["periods_per_year"] == K
    theirs = {
        "total_return": qs.comp(rows),
        "volatility": qs.volatility(rows, periods=K),
        "sharpe": qs.sharpe(rows, rf=RF, periods=K),
        "sortino": qs.sortino(rows, rf=RF, periods=K),
        "max_drawdown": qs.max_drawdown(rows),
    }
    for name, value in theirs.items():
        assert found[name] == pytest.approx(value, abs=NEAR), name


def test_ffn_agrees_on_the_stored_growth_and_counts_a_year_otherwise(
    ffn: ModuleType, stored: Stored, book: str
) -> None:
    found, values = stored.figures(book), stored.equity(book)["equity"].astype(float)
    assert found["total_return"] == pytest.approx(ffn.calc_total_return(values), abs=NEAR)
    assert found["max_drawdown"] == pytest.approx(ffn.calc_max_drawdown(values), abs=NEAR)
    # A year to the same date, then 156 days of the next one: 28 of July, 31, 30, 31, 30 and 6.
    assert values.index[0] == pd.Timestamp("2017-07-03")
    assert values.index[-1] == pd.Timestamp("2018-12-06")
    years = 1.0 + 156 / 365
    grown = 1.0 + ffn.calc_total_return(values)
    assert found["years"] == pytest.approx(years, abs=NEAR)
    assert found["cagr"] == pytest.approx(grown ** (1.0 / years) - 1.0, abs=NEAR)
    assert ffn.calc_cagr(values) == pytest.approx(grown ** (365.25 / 521) - 1.0, abs=NEAR)
    assert found["calmar"] == pytest.approx(found["cagr"] / -found["max_drawdown"], abs=NEAR)


def test_scipy_and_ffn_agree_on_what_is_stored_against_the_index(
    ffn: ModuleType, stored: Stored, book: str
) -> None:
    found, rows = stored.figures(book), stored.returns(book)
    index = index_returns(rows.index)
    free = (1.0 + RF) ** (1.0 / K) - 1.0
    fit = scipy.stats.linregress(index - free, rows - free)
    theirs = {
        "beta": fit.slope,
        "jensen_alpha": fit.intercept * K,
        "jensen_alpha_se": fit.intercept_stderr * K,
        "jensen_alpha_t": fit.intercept / fit.intercept_stderr,
        "information_ratio": ffn.calc_information_ratio(rows, index) * K**0.5,
        "benchmark_return": (1.0 + index).prod() - 1.0,
        "excess_return": (1.0 + rows).prod() - (1.0 + index).prod(),
        "geometric_alpha": (1.0 + rows).prod() / (1.0 + index).prod() - 1.0,
    }
    for name, value in theirs.items():
        assert found[name] == pytest.approx(value, abs=NEAR), name


def test_pandas_agrees_on_what_a_stored_book_traded_held_and_paid(
    stored: Stored, book: str
) -> None:
    found, rows = stored.figures(book), stored.equity(book)
    orders = pd.DataFrame(stored.rows(f"SELECT * FROM orders WHERE {{score}} AND book = '{book}'"))
    traded = rows["traded"].sum()
    assert traded == pytest.approx(orders["notional"].sum(), rel=NEAR)
    assert found["turnover"] == pytest.approx(
        traded / 2 / rows["equity"].mean() / (1.0 + 156 / 365), abs=NEAR
    )
    assert found["exposure"] == pytest.approx(rows["gross"].mean(), abs=NEAR)
    assert found["time_in_market"] == pytest.approx((rows["gross"] > 0).mean(), abs=NEAR)
    # 10 bps of what is traded; 5 bps of the price before it.
    assert found["commission"] == pytest.approx(orders["notional"].sum() * 0.001, rel=NEAR)
    before = (orders["shares"] * orders["reference_price"]).sum()
    assert found["slippage"] == pytest.approx(before * 0.0005, rel=NEAR)
    assert found["orders_filled"] == (orders["status"] == "filled").sum()


def test_quantstats_agrees_on_the_stored_probabilistic_sharpe_ratio(
    qs: ModuleType, stored: Stored
) -> None:
    own = Stored(database=stored.database, score="default")
    theirs = qs.probabilistic_sharpe_ratio(own.returns("ratings"), periods=K)
    assert own.figures("ratings")["probabilistic_sharpe"] == pytest.approx(theirs, abs=NEAR)


# ------------------------------------------------------------------------------- the decisions


def windows(stored: Stored, horizon: int) -> pd.DataFrame:
    """Return the resolved windows of a horizon with the rank of their rating."""
    found = pd.DataFrame(
        stored.rows(
            "SELECT c.session, c.ticker, c.rating::VARCHAR AS rating, c.rating_rank, h.raw_total, "
            "h.alpha, h.benchmark_return, h.status::VARCHAR AS status FROM horizon_returns h "
            "JOIN cells c USING (run_id, ticker, session, trial) "
            f"WHERE h.score_id = '{stored.score}' AND h.horizon = {horizon}"
        )
    )
    assert set(found["status"]) == {"resolved"}
    return found


@pytest.mark.parametrize("horizon", [1, 5, 20])
def test_pandas_agrees_on_the_stored_means_of_decisions(stored: Stored, horizon: int) -> None:
    found, rows = stored.figures("decisions", horizon), windows(stored, horizon)
    sides = rows["rating_rank"].clip(-1, 1)
    called = (sides * rows["alpha"])[sides != 0]
    by_rating = rows.groupby("rating")["alpha"].mean()
    theirs = {
        "mean_return": rows["raw_total"].mean(),
        "mean_alpha": rows["alpha"].mean(),
        "mean_directional_alpha": called.mean(),
        "hit_rate": (called > 0).mean(),
        "buy_minus_sell": by_rating["Buy"] - by_rating["Sell"],
        "monotonicity": scipy.stats.kendalltau(
            [RATINGS.index(rating) for rating in by_rating.index], by_rating
        ).statistic,
    }
    for name, value in theirs.items():
        assert found[name] == pytest.approx(value, abs=NEAR), name


@pytest.mark.parametrize("horizon", [1, 5, 20])
def test_scipy_agrees_on_the_stored_rank_correlations(stored: Stored, horizon: int) -> None:
    found, rows = stored.figures("decisions", horizon), windows(stored, horizon)
    ranks = [
        (
            scipy.stats.spearmanr(one["rating_rank"], one["alpha"]).statistic,
            scipy.stats.kendalltau(one["rating_rank"], one["alpha"]).statistic,
        )
        for _, one in rows.groupby("session")
        if one["rating_rank"].nunique() > 1
    ]
    assert len(ranks) > 60
    spearman, kendall = pd.DataFrame(ranks).mean()
    assert found["rank_ic_spearman"] == pytest.approx(spearman, abs=NEAR)
    assert found["rank_ic_kendall"] == pytest.approx(kendall, abs=NEAR)


def test_every_window_is_the_ratio_of_prices_in_the_snapshots_file(stored: Stored) -> None:
    """Open of the next session to the close of the fifth; none of them split in these years."""
    bars = pq.read_table(SNAPSHOT / "bars.parquet").to_pandas()
    paid = pq.read_table(SNAPSHOT / "actions.parquet").to_pandas()
    sessions = calendar_by_code("XNYS").sessions(date(2017, 7, 3), date(2018, 12, 31))
    place = {day: at for at, day in enumerate(sessions)}
    price = bars.set_index(["instrument", "session"])
    for row in windows(stored, 5).itertuples():
        day = pd.Timestamp(row.session).date()
        entry, leave = sessions[place[day] + 1], sessions[place[day] + 5]
        opened, closed = price.loc[(row.ticker, entry), "open"], price.loc[(row.ticker, leave)]
        own = paid[paid["instrument"] == row.ticker]
        dividends = own[(own["ex_session"] > entry) & (own["ex_session"] <= leave)]["amount"].sum()
        assert row.raw_total == pytest.approx((closed["close"] + dividends) / opened - 1, abs=NEAR)
        index = price.loc[("^GSPC", leave), "close"] / price.loc[("^GSPC", entry), "open"] - 1
        assert row.benchmark_return == pytest.approx(index, abs=NEAR)
        # A price index holds no dividends, so alpha leaves them out on both sides.
        assert row.alpha == pytest.approx(closed["close"] / opened - 1 - index, abs=NEAR)
