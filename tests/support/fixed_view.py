"""A view over arrays made by hand, for tests of tools and agents that need no snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import numpy as np

from tradingagents_core.errors import DataUnavailable, NoMarketData, ToolInputError
from tradingagents_core.indicators import compute
from tradingagents_core.protocols import CURRENT_SITE, Bars, Identity, IndicatorSeries, Row, Site

FACEBOOK = Identity(
    instrument="META",
    symbol="FB",
    name="Facebook, Inc.",
    exchange="NASDAQ",
    currency="USD",
    sector=None,
    asset_type="stock",
    static=False,
)
NO_TABLE = "this snapshot was captured without it"


def bars_of(
    sessions: list[str],
    close: list[float],
    *,
    open: list[float] | None = None,  # noqa: A002 - a bar's own word
    high: list[float] | None = None,
    low: list[float] | None = None,
    volume: list[float] | None = None,
) -> Bars:
    """Make bars; what is not given equals the close, and the volume 1000."""
    return Bars(
        sessions=np.array(sessions, dtype="datetime64[D]"),
        open=np.array(open if open is not None else close, dtype=np.float64),
        high=np.array(high if high is not None else close, dtype=np.float64),
        low=np.array(low if low is not None else close, dtype=np.float64),
        close=np.array(close, dtype=np.float64),
        volume=np.array(volume if volume is not None else [1000] * len(close), dtype=np.float64),
    )


@dataclass
class FixedView:
    """Answer from one instrument's bars; keeps the sites from which it was read.

    Attributes:
        all_bars: Bars up to the cutoff.
        session: Simulated date.
        identity_row: The one instrument.
        news: Rows of the news table by instrument; None where there is no such table.
        stale: Reason that bars are refused with, or None.
        sites: Site of each read.
    """

    all_bars: Bars
    session: date = date(2018, 6, 29)
    identity_row: Identity = FACEBOOK
    news: Mapping[str | None, tuple[Row, ...]] | None = None
    stale: str | None = None
    sites: list[Site] = field(default_factory=list)

    @property
    def cutoff(self) -> datetime:
        """Four in the afternoon of New York in summer."""
        return datetime(self.session.year, self.session.month, self.session.day, 20, tzinfo=UTC)

    @property
    def last_session(self) -> date:
        """The newest bar's session."""
        newest: date = self.all_bars.sessions[-1].item()
        return newest

    def resolve(self, symbol: str) -> str:
        """Know one symbol."""
        if symbol != self.identity_row.symbol:
            raise ToolInputError(f"{symbol!r} is no symbol here")
        return self.identity_row.instrument

    def identity(self, symbol: str) -> Identity:
        """Return the one identity."""
        return self.identity_row

    def bars(
        self,
        symbol: str,
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> Bars:
        """Return a window of the bars."""
        if self.stale is not None:
            raise NoMarketData(self.stale)
        cut = self._cut(start, end, last)
        held = self.all_bars
        return Bars(
            sessions=held.sessions[cut],
            open=held.open[cut],
            high=held.high[cut],
            low=held.low[cut],
            close=held.close[cut],
            volume=held.volume[cut],
        )

    def indicators(
        self,
        symbol: str,
        names: tuple[str, ...],
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> IndicatorSeries:
        """Return a window of the indicators."""
        cut = self._cut(start, end, last)
        whole = compute(self.all_bars)
        return IndicatorSeries(
            sessions=self.all_bars.sessions[cut],
            values={name: whole[name][cut] for name in names},
        )

    def require(self, table: str, symbol: str | None = None) -> None:
        """Refuse every table but news, where there is some."""
        if table != "news" or self.news is None:
            raise DataUnavailable(f"the snapshot has no table {table}: {NO_TABLE}")

    def rows(
        self,
        table: str,
        symbol: str | None = None,
        *,
        start: date | None = None,
        end: date | None = None,
        last: int | None = None,
    ) -> tuple[Row, ...]:
        """Return a window of the news."""
        found = [
            row
            for row in (self.news or {}).get(symbol, ())
            if (start is None or row.known_at.date() >= start)
            and (end is None or row.known_at.date() <= end)
        ]
        return tuple(found if last is None else found[-last:])

    def withheld(self, table: str, symbol: str | None = None, *, end: date | None = None) -> int:
        """Keep nothing back."""
        return 0

    def _cut(self, start: date | None, end: date | None, last: int | None) -> slice:
        self.sites.append(CURRENT_SITE.get())
        days = self.all_bars.sessions
        stop = len(days)
        if end is not None:
            stop = int(np.searchsorted(days, np.datetime64(end, "D"), side="right"))
        first = 0 if start is None else int(np.searchsorted(days, np.datetime64(start, "D")))
        if last is not None:
            first = max(first, stop - last)
        return slice(first, stop)
