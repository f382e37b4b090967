"""A user's own book: what somebody holds, as he writes it into a JSON file.

    {"as_of": "2018-01-02", "currency": "USD", "cash": 25000,
     "positions": [{"ticker": "AAPL", "shares": 100, "price": 172.26, "cost": 150.0}]}

The book is a statement of its owner: nothing of it is looked up, and `walk.held` refuses what the
snapshot's prices contradict. It is read once, its content (not its path) is part of a run's
identity, and every date of a walk is shown it as it stands.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import date
from itertools import pairwise
from typing import Annotated, Any

from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    field_validator,
    model_validator,
)

from backtester import spellings
from backtester.errors import UsageError
from tradingagents_core.protocols import Holding, Holdings

Amount = Annotated[float, Strict(), AllowInfNan(False), Field(ge=-1e15, le=1e15)]
Price = Annotated[float, Strict(), AllowInfNan(False), Field(gt=0, le=1e12)]
Shares = Annotated[float, Strict(), AllowInfNan(False), Field(ge=-1e12, le=1e12)]
MOST_POSITIONS = 500


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            _require_known(value, cls.model_fields)
        return value


class OwnPosition(_Strict):
    """State one position.

    Attributes:
        ticker: Symbol as its owner calls it, in its one spelling.
        shares: Number of shares; negative for a short position.
        price: Last price a share, in the book's currency.
        cost: Price paid (or had, for a short) a share on average, or None where it is not stated.
    """

    ticker: str
    shares: Shares
    price: Price
    cost: Price | None = None

    @field_validator("ticker")
    @classmethod
    def _ticker_is_a_symbol(cls, value: str) -> str:
        return spellings.symbol(value)

    @field_validator("shares")
    @classmethod
    def _something_is_held(cls, value: float) -> float:
        if value == 0:
            raise ValueError("0 shares are no position: leave it out")
        return value


class OwnBook(_Strict):
    """State what is held.

    Attributes:
        as_of: Day at whose end this was so, or None where it is not stated.
        currency: Currency of all amounts, in three letters.
        cash: Cash; negative where it is owed.
        positions: Sorted by ticker.
    """

    as_of: Annotated[
        date | None, BeforeValidator(lambda v: v if v is None else spellings.day(v))
    ] = None
    currency: str
    cash: Amount
    positions: tuple[OwnPosition, ...] = Field(default=(), max_length=MOST_POSITIONS)

    @field_validator("currency")
    @classmethod
    def _currency_is_a_code(cls, value: str) -> str:
        if not (len(value) == 3 and value.isascii() and value.isalpha()):
            raise ValueError(
                f"{spellings.shown(value)} is no currency: write its three letters, such as USD"
            )
        return value

    @field_validator("positions")
    @classmethod
    def _each_ticker_stands_once(cls, value: tuple[OwnPosition, ...]) -> tuple[OwnPosition, ...]:
        ordered = sorted(value, key=lambda held: held.ticker)
        for one, after in pairwise(ordered):
            if one.ticker == after.ticker:
                raise ValueError(f"{one.ticker} stands twice: add its positions up")
        return tuple(ordered)

    def holdings(self) -> Holdings:
        """Return the book as prompts show it, with what follows from the figures stated.

        Weights are parts of the equity; there are none where it is not above zero.
        """
        values = [held.shares * held.price for held in self.positions]
        equity = self.cash + sum(values)
        return Holdings(
            source="user",
            as_of=self.as_of,
            currency=self.currency,
            cash=self.cash,
            equity=equity,
            positions=tuple(
                Holding(
                    symbol=held.ticker,
                    shares=held.shares,
                    price=held.price,
                    value=value,
                    weight=value / equity if equity > 0 else None,
                    unrealised=(
                        None if held.cost is None else held.shares * (held.price - held.cost)
                    ),
                )
                for held, value in zip(self.positions, values, strict=True)
            ),
        )


def require_known_by(book: OwnBook | None, first: date, *, at_open: bool) -> None:
    """Refuse a book of a day that the first decision could not know.

    Args:
        book: The book, or None.
        first: First decision session.
        at_open: Whether decisions are made at the open: then the evening of that day is to come.

    Raises:
        UsageError: With what to do.
    """
    if book is None or book.as_of is None:
        return
    if book.as_of > first or (at_open and book.as_of == first):
        when = f"the open of {first}" if at_open else str(first)
        raise UsageError(
            f"portfolio is as of {book.as_of}, which the first decision, on {when}, could not "
            "know: give an earlier book, or begin the run later"
        )


def _require_known(given: Iterable[Any], known: Iterable[str]) -> None:
    names = tuple(known)
    for key in given:
        if key not in names:
            near = difflib.get_close_matches(str(key)[:60], names, n=1, cutoff=0.6)
            meant = f"did you mean {near[0]!r}?" if near else f"write {', '.join(names)}"
            raise ValueError(f"unknown key {spellings.shown(key)}: {meant}")
