"""Read the published database back as typed rows: the rating table and what is printed with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import duckdb

from backtester.errors import DataError
from backtester.spending.bill import Bill, dollars
from backtester.spending.knowledge import trainings
from backtester.store.money import CACHE_EFFICIENCY, COST_BY_DAY, COST_BY_NODE
from backtester.store.query import damaged, open_results
from backtester.store.schema import ordered_select
from backtester.store.score_views import SCORE_COMPARISON
from backtester.store.terms import View
from backtester.store.views import LEAK_AUDIT


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Hold what the alpha views measure of a group; see `backtester schema` for each.

    Fractions are fractions. A mean is None where no row has the value.
    """

    n: int
    resolved: int
    pending: int
    missing_bar: int
    conflict: int
    delisted: int
    n_return: int
    mean_return: float | None
    stddev_return: float | None
    n_benchmark: int
    mean_benchmark_return: float | None
    n_alpha: int
    mean_alpha: float | None
    stddev_alpha: float | None
    n_directional: int
    mean_directional_alpha: float | None
    right_calls: int
    exact_zeros: int
    hit_rate: float | None
    overlapping_windows: int


@dataclass(frozen=True, kw_only=True)
class RatingRow(Measures):
    """One row of the rating table.

    Attributes:
        rating: ``Sell`` ... ``Buy``, or ``unread``.
    """

    rating: str


@dataclass(frozen=True, kw_only=True)
class RunSummary(Measures):
    """What became of every cell of a run, and the measures over all its scored decisions.

    Attributes:
        run_id: Run.
        score_id: Score.
        results_root: Root, or None while the run is not finished.
        horizon: Sessions from decision to exit.
        entry_rule: Fill rule.
        cells: All cells so far, warm-up included; so are the counts by status.
        done: With a rating.
        unread: Answered, but no rating could be read.
        failed: Could not be decided.
        no_data: No usable bar at the cutoff.
        skipped_budget: The run's cap came first.
        degraded: A core tool failed on the way.
        warmup: Not scored.
        benchmarks: Benchmarks of the scored decisions, sorted.
        benchmark_bases: Their bases, ``price`` or ``total``.
    """

    run_id: str
    score_id: str
    results_root: str | None
    horizon: int | None
    entry_rule: str | None
    cells: int
    done: int
    unread: int
    failed: int
    no_data: int
    skipped_budget: int
    degraded: int
    warmup: int
    benchmarks: tuple[str, ...]
    benchmark_bases: tuple[str, ...]

    @property
    def benchmark(self) -> str:
        """The benchmarks in words, or ``none``."""
        return ", ".join(self.benchmarks) or "none"

    @property
    def benchmark_basis(self) -> str:
        """Their bases in words, or ``none``."""
        return ", ".join(self.benchmark_bases) or "none"

    @property
    def equal_weight_return(self) -> float | None:
        """Mean return of all scored decisions with equal weights, whatever the rating."""
        return self.mean_return

    @property
    def benchmark_return(self) -> float | None:
        """Mean return of the benchmark over the same windows."""
        return self.mean_benchmark_return


def published_runs(database: Path) -> tuple[str, ...]:
    """Return the ids of the runs in the database, sorted; none where there is no database.

    Raises:
        DataError: It is damaged or of another version.
    """
    if not database.exists():
        return ()
    rows = rows_of(database, "SELECT run_id FROM runs ORDER BY run_id", [])
    return tuple(str(row["run_id"]) for row in rows)


class PublishedState(NamedTuple):
    """Say what the database holds of a run: compare it with the run's manifest.

    Attributes:
        status: ``started``, ``stopped`` or ``finished``, when its rows were published.
        results_root: Root of the rows, or None where the run was not finished.
    """

    status: str
    results_root: str | None


def published_states(database: Path) -> Mapping[str, PublishedState]:
    """Return how each run in the database stood when its rows were published, by run id.

    Empty where there is no database.

    Raises:
        DataError: It is damaged or of another version.
    """
    if not database.exists():
        return {}
    rows = rows_of(database, "SELECT run_id, status, results_root FROM runs ORDER BY run_id", [])
    return {row["run_id"]: PublishedState(row["status"], row["results_root"]) for row in rows}


def rating_rows(database: Path, run_id: str, *, score_id: str = "default") -> tuple[RatingRow, ...]:
    """Return a run's rating table: Sell, Underweight, Hold, Overweight, Buy, unread.

    Always six rows; a rating that was never given has ``n`` 0 and no means.

    Raises:
        DataError: There is no database, it is damaged, or it has no such run and score.
    """
    query = "SELECT * FROM alpha_by_rating_all WHERE run_id = ? AND score_id = ? ORDER BY rating"
    rows = rows_of(database, query, [run_id, score_id])
    if not rows:
        _unknown(database, run_id, score_id)
    names = [field.name for field in fields(RatingRow)]
    return tuple(RatingRow(**{name: row[name] for name in names}) for row in rows)


def run_summary(database: Path, run_id: str, *, score_id: str = "default") -> RunSummary:
    """Return what became of a run's cells, with equal-weight and benchmark means.

    Raises:
        DataError: There is no database, it is damaged, or it has no such run and score.
    """
    query = "SELECT * FROM run_summary_all WHERE run_id = ? AND score_id = ?"
    rows = rows_of(database, query, [run_id, score_id])
    if not rows:
        _unknown(database, run_id, score_id)
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in rows[0].items()
    }
    return RunSummary(**values)


def problems(database: Path, run_id: str) -> tuple[str, ...]:
    """Return one line for each kind of cell or return that has no result, with an example.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    cells = rows_of(database, _CELL_PROBLEMS, [run_id])
    alphas = rows_of(database, _ALPHA_PROBLEMS, [run_id])
    return (
        *(
            f"{row['n']} {row['status']} ({row['kind']}), for example {row['ticker']} "
            f"{row['session']}: {row['example']}"
            for row in cells
        ),
        *(f"{row['n']} without alpha: {row['alpha_reason']}" for row in alphas),
    )


@dataclass(frozen=True, kw_only=True)
class Sight:
    """Say what one node of a run saw of one table, over all its cells.

    Attributes:
        node: Node; ``harness`` outside the graph.
        table: Table of the snapshot.
        reads: Reads.
        rows: Rows in them.
        first: Earliest start of a window, or None for an open one.
        last: Latest end of a window, or None.
        newest: Newest instant from which a row was known, or None for no row.
    """

    node: str
    table: str
    reads: int
    rows: int
    first: date | None
    last: date | None
    newest: datetime | None


def sights(database: Path, run_id: str) -> tuple[Sight, ...]:
    """Return what each node of a run saw, sorted by node and table.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    return tuple(Sight(**row) for row in rows_of(database, _SIGHTS, [run_id]))


_SIGHTS: Final = """
SELECT node, source_table AS "table", count(*) AS reads, sum(n_rows)::BIGINT AS rows,
    min(window_start) AS first, max(window_end) AS last, max(max_known_at) AS newest
FROM reads WHERE run_id = ? GROUP BY ALL ORDER BY node, source_table"""

_CELL_PROBLEMS: Final = """
SELECT status::VARCHAR AS status, coalesce(error_class, rating_source) AS kind, count(*) AS n,
    arg_min(ticker, (session, ticker, trial)) AS ticker,
    arg_min(session, (session, ticker, trial))::VARCHAR AS session,
    coalesce(arg_min(error, (session, ticker, trial)), 'no rating could be read') AS example
FROM cells WHERE run_id = ? AND status <> 'done' GROUP BY ALL ORDER BY status, kind"""

_ALPHA_PROBLEMS: Final = """
SELECT alpha_reason, count(*) AS n FROM returns
WHERE run_id = ? AND score_id = 'default' AND alpha IS NULL AND raw_total IS NOT NULL
GROUP BY ALL ORDER BY alpha_reason"""


def run_document(
    database: Path, run_id: str, *, score_id: str | None = None
) -> Mapping[str, object]:
    """Return a run's figures as JSON values: summary, ratings, audit, costs, cache, knowledge.

    Args:
        database: Published database.
        run_id: Run.
        score_id: Score that summary and ratings are of; default the run's own.

    Raises:
        DataError: There is no database, it is damaged, or it has no such run and score.
    """
    score = score_id or "default"
    return {
        "summary": asdict(run_summary(database, run_id, score_id=score)),
        "ratings": [asdict(row) for row in rating_rows(database, run_id, score_id=score)],
        "leak_audit": _of_run(database, LEAK_AUDIT, run_id),
        "cost_by_node": _of_run(database, COST_BY_NODE, run_id),
        "cost_by_day": _of_run(database, COST_BY_DAY, run_id),
        "cache_efficiency": _of_run(database, CACHE_EFFICIENCY, run_id),
        "knowledge": list(knowledge_lines(database, run_id)),
        "scores": [_plain(row) for row in _of_run(database, SCORE_COMPARISON, run_id)],
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose dates are texts, for JSON."""
    return {
        name: value.isoformat() if isinstance(value, date) else value for name, value in row.items()
    }


def knowledge_lines(database: Path, run_id: str) -> tuple[str, ...]:
    """Say for each language model how many decisions it may have known the outcome of.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    models = rows_of(database, "SELECT models FROM runs WHERE run_id = ?", [run_id])
    sessions = [row["session"] for row in rows_of(database, _DECIDED, [run_id])]
    table = json.loads(models[0]["models"] or "{}") if models else {}
    return tuple(training.words(sessions) for training in trainings(table))


def run_bill(database: Path, run_id: str) -> Bill:
    """Return what all model calls of a run took, superseded ones included.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    (row,) = rows_of(database, _BILL, [run_id])
    return Bill(**row)


def paid_words(database: Path, run_id: str) -> str:
    """Say what all commands of a run paid, by its spend ledger; empty where nothing was.

    Raises:
        DataError: There is no database, or it is damaged.
    """
    (row,) = rows_of(database, _PAID, [run_id])
    if not row["calls"]:
        return ""
    cost = dollars(row["cost"], unknown=row["unknown"], of=row["calls"])
    return f"{row['calls']} paid calls by all commands of this run, {cost}"


_DECIDED: Final = """
SELECT session FROM cells WHERE run_id = ? AND status IN ('done', 'unread')
ORDER BY session, ticker, trial"""

_BILL: Final = """
SELECT count(*) AS calls,
    count(*) FILTER (hit) AS hits,
    coalesce(sum(input_tokens), 0)::BIGINT AS input_tokens,
    coalesce(sum(output_tokens), 0)::BIGINT AS output_tokens,
    count(*) FILTER (input_tokens IS NULL OR output_tokens IS NULL) AS uncounted,
    coalesce(exact_sum(cost_usd), 0.0) AS cost_usd,
    count(*) FILTER (cost_usd IS NULL) AS unpriced,
    coalesce(exact_sum(saved_usd), 0.0) AS saved_usd,
    count(*) FILTER (saved_usd IS NULL) AS unknown_savings
FROM llm_calls WHERE run_id = ?"""

_PAID: Final = """
SELECT count(*) AS calls, coalesce(exact_sum(cost_usd), 0.0) AS cost,
    count(*) FILTER (cost_usd IS NULL) AS unknown
FROM spend WHERE run_id = ?"""


def _of_run(database: Path, view: View, run_id: str) -> list[dict[str, Any]]:
    return rows_of(database, f"FROM ({ordered_select(view)}) WHERE run_id = ?", [run_id])


def _unknown(database: Path, run_id: str, score_id: str) -> NoReturn:
    known = published_runs(database)
    if run_id in known:
        raise DataError(f"run {run_id} has no score {score_id!r} in {database}: try 'default'")
    raise DataError(
        f"{database} has no run {run_id}: it holds {', '.join(known[:5]) or 'none'}; "
        "run `backtester rebuild` if its folder is there"
    )


def rows_of(database: Path, query: str, parameters: Sequence[str | int]) -> list[dict[str, Any]]:
    """Return the rows of one of the product's own queries.

    Raises:
        DataError: There is no database, or it is damaged or of another version.
    """
    with open_results(database) as connection:
        try:
            found = connection.execute(query, list(parameters))
            names = [str(column[0]) for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        except duckdb.Error as error:
            # The queries are ours, so what fails is the file.
            raise damaged(error, database) from error
