"""Play many books in one walk, and keep the first ones whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backtester.book.columns import BookColumns, books_of
from backtester.book.crowd import Crowd, Reals
from backtester.book.desires import Wanted, desires_of
from backtester.book.lines import Stage
from backtester.book.records import BookRule
from backtester.book.walk import Script


@dataclass(frozen=True, kw_only=True)
class Played:
    """Hold what many books came to.

    Attributes:
        books: Those that were kept, in order.
        equity: Of all of them, a row a session of the stage and a column a book.
    """

    books: tuple[BookColumns, ...]
    equity: Reals


def play(
    stage: Stage,
    script: Script,
    rule: BookRule,
    wanted: Sequence[Wanted],
    *,
    kept: int = 0,
    with_positions: int = 0,
    always: Sequence[bool] = (),
) -> Played:
    """Play many books; see `Bench.play`.

    Raises:
        DataError: A book holds what meets an action that cannot be believed.
        BacktesterError: A book does not balance.
    """
    if not wanted:
        return Played(books=(), equity=np.zeros((len(stage.rows), 0)))
    desires = desires_of(stage, rule, wanted)
    crowd = Crowd(stage, script, rule, desires, kept=kept, always=always)
    crowd.go()
    books = books_of(
        crowd.tape,
        crowd.equity,
        stage=stage,
        rule=rule,
        desires=desires,
        with_positions=with_positions,
    )
    return Played(books=books, equity=crowd.equity)
