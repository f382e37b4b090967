"""Decisions as columns: made of a run's cells, or read from a file, without an object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, Protocol, get_args, overload

import numpy as np
import numpy.typing as npt

from backtester.errors import DataError
from backtester.records import DIRECTION, RATINGS, CellKey, CellStatus

Whole = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Days = npt.NDArray[np.datetime64]

STATUSES: Final[tuple[CellStatus, ...]] = get_args(CellStatus)
UNRATED: Final = len(RATINGS)
"""Place of a decision without a rating, behind those of the five."""
_RATED: Final[tuple[str | None, ...]] = (*RATINGS, None)


class Standing(Protocol):
    """Hold a decision as it stands: all that a score takes of a cell, its calls apart."""

    @property
    def key(self) -> CellKey:
        """Cell."""

    @property
    def status(self) -> CellStatus:
        """State of the cell."""

    @property
    def rating(self) -> str | None:
        """One of the five, or None."""

    @property
    def scored(self) -> bool:
        """Whether it counts; warm-up does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StandingDecision:
    """Hold one decision of columns; see `Standing`."""

    key: CellKey
    status: CellStatus
    rating: str | None
    scored: bool


class Decided(Sequence[Standing]):
    """Hold decisions, an entry each in every column; an object is made only of one looked at.

    Attributes:
        tickers: Instrument ids, sorted; some of them may have no decision.
        ticker: Place in `tickers`.
        day: Session.
        trial: Lane.
        status: Place in `STATUSES`.
        rating: Place in `RATINGS`, or `UNRATED`.
        scored: Whether it counts.
    """

    def __init__(
        self,
        *,
        tickers: tuple[str, ...],
        ticker: Whole,
        day: Days,
        trial: Whole,
        status: Whole,
        rating: Whole,
        scored: Flags,
    ) -> None:
        """Hold columns of one length."""
        self.tickers = tickers
        self.ticker, self.day, self.trial = ticker, day, trial
        self.status, self.rating, self.scored = status, rating, scored

    @classmethod
    def of(cls, cells: Sequence[Standing]) -> Decided:
        """Take cells in their order.

        Raises:
            DataError: A word that is no rating.
        """
        if isinstance(cells, Decided):
            return cells
        keys = [cell.key for cell in cells]
        return cls.from_columns(
            tickers=[key.ticker for key in keys],
            days=np.array([key.session for key in keys], dtype="datetime64[D]"),
            trials=np.array([key.trial for key in keys], dtype=np.int64),
            statuses=[cell.status for cell in cells],
            ratings=[cell.rating for cell in cells],
            scored=np.array([cell.scored for cell in cells], dtype=np.bool_),
        )

    @classmethod
    def from_columns(
        cls,
        *,
        tickers: Sequence[str],
        days: Days,
        trials: Whole,
        statuses: Sequence[CellStatus],
        ratings: Sequence[str | None],
        scored: Flags,
    ) -> Decided:
        """Take columns of words and numbers; see `of`."""
        names = tuple(sorted(set(tickers)))
        for rating in set(ratings) - set(_RATED):
            raise DataError(f"{rating!r} is no rating: write one of {', '.join(DIRECTION)}")
        return cls(
            tickers=names,
            ticker=_places(tickers, names),
            day=days,
            trial=trials,
            status=_places(statuses, STATUSES),
            rating=_places(ratings, _RATED),
            scored=scored,
        )

    def at(self, rows: npt.NDArray[np.generic]) -> Decided:
        """Return some of them: by place in that order, or by flag."""
        return Decided(
            tickers=self.tickers,
            ticker=self.ticker[rows],
            day=self.day[rows],
            trial=self.trial[rows],
            status=self.status[rows],
            rating=self.rating[rows],
            scored=self.scored[rows],
        )

    def by_ticker(self) -> Iterator[tuple[str, Whole]]:
        """Yield each instrument that has a decision, with the places of its rows."""
        order = np.argsort(self.ticker, kind="stable")
        ends = np.searchsorted(self.ticker[order], np.arange(len(self.tickers) + 1))
        for place, name in enumerate(self.tickers):
            if ends[place] < ends[place + 1]:
                yield name, order[ends[place] : ends[place + 1]]

    def has_status(self, *wanted: CellStatus) -> Flags:
        """Say which are in one of some states."""
        places = [STATUSES.index(status) for status in wanted]
        found: Flags = np.isin(self.status, places)
        return found

    @overload
    def __getitem__(self, at: int) -> Standing: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Standing]: ...

    def __getitem__(self, at: int | slice) -> Standing | Sequence[Standing]:
        """Return a decision, or some."""
        if isinstance(at, slice):
            return list(self)[at]
        place = range(len(self))[at]
        day: date = self.day[place].item()
        return self._made(
            day, int(self.ticker[place]), int(self.trial[place]), int(self.status[place]),
            int(self.rating[place]), bool(self.scored[place]),
        )  # fmt: skip

    def __iter__(self) -> Iterator[Standing]:
        """Make one decision after the other."""
        columns = (self.day, self.ticker, self.trial, self.status, self.rating, self.scored)
        for row in zip(*(column.tolist() for column in columns), strict=True):
            yield self._made(*row)

    def __len__(self) -> int:
        """Return the number of decisions."""
        return len(self.ticker)

    def _made(
        self, day: date, ticker: int, trial: int, status: int, rating: int, scored: bool
    ) -> Standing:
        return StandingDecision(
            key=CellKey(session=day, ticker=self.tickers[ticker], trial=trial),
            status=STATUSES[status],
            rating=_RATED[rating],
            scored=scored,
        )


def _places(words: Sequence[object], known: Sequence[object]) -> Whole:
    place = {word: at for at, word in enumerate(known)}
    return np.fromiter(map(place.__getitem__, words), dtype=np.int64, count=len(words))
