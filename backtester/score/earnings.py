"""What decisions earned, as columns: one entry a decision, from settling to figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backtester.calendar import Calendar
from backtester.columnar import Rows
from backtester.records import DIRECTION, RATINGS, CellKey, ReturnRecord
from backtester.score.definition import ScoreDefinition
from backtester.score.records import HorizonRow
from backtester.settlement.decided import Decided
from backtester.settlement.many import settle_all, table_of_returns
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Days = npt.NDArray[np.datetime64]


class ReturnRows(Rows[ReturnRecord]):
    """Hold returns as columns; their key is ``ticker, session, trial``."""

    def __init__(self, table: pa.Table, score_id: str) -> None:
        """Hold a table of `settle_all`."""
        super().__init__(ReturnRecord, table)
        self.score_id = score_id

    def _made(self, table: pa.Table) -> Iterator[ReturnRecord]:
        for values in self.values(table):
            key = CellKey(**{name: values.pop(name) for name in ("session", "ticker", "trial")})
            yield ReturnRecord(key=key, score_id=self.score_id, **values)


@dataclass(frozen=True, kw_only=True)
class Earnings:
    """Hold what decisions earned to one horizon; arrays have one entry for each.

    Attributes:
        tickers: Instrument ids, sorted.
        ticker: Place in `tickers`.
        day: Decision session.
        rating: Place in `RATINGS`, or `UNRATED`.
        position: Of the session, among all sessions of the universe's calendars.
        raw_total: Return, NaN where there is none; so the next three.
        alpha: Return on the benchmark's basis less the benchmark's.
        geometric: (1 + return) / (1 + benchmark's) - 1.
        directed: Direction times alpha of a call that takes a side.
    """

    tickers: tuple[str, ...]
    ticker: Whole
    day: Days
    rating: Whole
    position: Whole
    raw_total: Floats
    alpha: Floats
    geometric: Floats
    directed: Floats

    def at(self, rows: npt.NDArray[np.generic]) -> Earnings:
        """Return some of the decisions, in their order."""
        return replace(
            self,
            ticker=self.ticker[rows],
            day=self.day[rows],
            rating=self.rating[rows],
            position=self.position[rows],
            raw_total=self.raw_total[rows],
            alpha=self.alpha[rows],
            geometric=self.geometric[rows],
            directed=self.directed[rows],
        )

    def __len__(self) -> int:
        """Return the number of decisions."""
        return len(self.ticker)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Number the sessions of all calendars of a universe as one line.

    Attributes:
        days: All of them, ascending.
        calendars: By code.
    """

    days: Days
    calendars: Mapping[str, Calendar]

    @classmethod
    def of(cls, tickers: Sequence[str], snapshot: Snapshot) -> Clock:
        """Take the calendars of some instruments."""
        held = [market_of(snapshot, ticker).calendar for ticker in tickers]
        calendars = {calendar.code: calendar for calendar in held}
        days = np.unique(np.concatenate([one.days for one in calendars.values()]))
        return cls(days=days, calendars=calendars)

    def span(self, horizon: int) -> int:
        """Return the most positions of the line that a window of so many sessions takes."""
        if len(self.calendars) < 2:
            return horizon
        most = horizon
        for calendar in self.calendars.values():
            own = np.searchsorted(self.days, calendar.days)
            most = max(most, int((own[horizon:] - own[:-horizon]).max(initial=0)))
        return most


class Settled:
    """Hold what every decision of a score earned, by horizon.

    Attributes:
        returns: To the score's own horizon.
        clock: Numbers the sessions.
    """

    def __init__(
        self,
        decided: Decided,
        definition: ScoreDefinition,
        snapshot: Snapshot,
        known: Mapping[CellKey, ReturnRecord],
    ) -> None:
        """Settle.

        Args:
            decided: Cells that have a return, in the order of the rows.
            definition: Has horizons and rules.
            snapshot: What to settle on.
            known: Returns at the definition's own horizon that are known already.

        Raises:
            DataError: See `settle`.
        """
        given, self._ticker = np.unique(decided.ticker, return_inverse=True)
        self._tickers = tuple(decided.tickers[place] for place in given.tolist())
        self._day, self._rating = decided.day, decided.rating
        self._tables = {
            horizon: _settled(
                decided,
                definition,
                snapshot,
                known if horizon == definition.horizon else {},
                horizon,
                self._tickers,
            )
            for horizon in definition.horizons
        }
        self.returns = ReturnRows(self._tables[definition.horizon], definition.score_id)
        self.clock = Clock.of(self._tickers, snapshot) if len(decided) else None

    def earnings(self, horizon: int) -> Earnings:
        """Return the numbers of one horizon."""
        table = self._tables[horizon]
        days = self._day if self.clock is None else self.clock.days
        sides = np.array([*(DIRECTION[rating] for rating in RATINGS), 0], dtype=np.float64)
        side, alpha = sides[self._rating], _numbers(table, "alpha")
        return Earnings(
            tickers=self._tickers,
            ticker=self._ticker,
            day=self._day,
            rating=self._rating,
            position=np.searchsorted(days, self._day),
            raw_total=_numbers(table, "raw_total"),
            alpha=alpha,
            geometric=_geometric(table),
            directed=np.where(side != 0.0, side * alpha, np.nan),
        )

    def horizon_table(self, horizon: int) -> Rows[HorizonRow]:
        """Return the rows of table ``horizon_returns`` of one horizon."""
        table = self._tables[horizon]
        taken = ("ticker", "session", "trial", "horizon", "status", "exit_session", "raw_total")
        columns: dict[str, Any] = {name: table.column(name) for name in taken}
        for name in ("benchmark_return", "alpha", "directional_alpha"):
            columns[name] = table.column(name)
        columns["geometric_alpha"] = pa.array(_geometric(table), from_pandas=True)
        columns["reason"] = pc.coalesce(table.column("reason"), table.column("alpha_reason"))
        return Rows.from_columns(HorizonRow, columns)


def _settled(
    decided: Decided,
    definition: ScoreDefinition,
    snapshot: Snapshot,
    known: Mapping[CellKey, ReturnRecord],
    horizon: int,
    tickers: Sequence[str],
) -> pa.Table:
    rules = {ticker: definition.rule_for(horizon, ticker) for ticker in tickers}
    found = [known.get(cell.key) for cell in decided] if known else [None] * len(decided)
    old = table_of_returns([record for record in found if record is not None])
    if old.num_rows == len(decided) and known:
        return old
    lacking = np.array([record is None for record in found], dtype=np.bool_)
    new = settle_all(decided.at(lacking), snapshot=snapshot, rules=rules)
    back = np.argsort(np.concatenate([np.flatnonzero(~lacking), np.flatnonzero(lacking)]))
    return pa.concat_tables([old, new]).take(back).combine_chunks()


def _numbers(table: pa.Table, name: str) -> Floats:
    """Return a column of numbers; NaN where there is none."""
    found: Floats = table.column(name).to_numpy()
    return found.astype(np.float64, copy=False)


def _geometric(table: pa.Table) -> Floats:
    other = _numbers(table, "benchmark_return")
    on_total = np.array([one == "total" for one in table.column("benchmark_basis").to_pylist()])
    own = np.where(on_total, _numbers(table, "raw_total"), _numbers(table, "raw_price"))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = (1.0 + own) / (1.0 + other) - 1.0
    usable = ~np.isnan(_numbers(table, "alpha")) & (other > -1.0) & ~np.isnan(own)
    return np.where(usable, found, np.nan)
