"""What is worked out from rows is kept with these rows, and with no others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tradingagents_core.protocols import Row
from tradingagents_core.rows import Rows, worked_out

FOUND = [
    Row(known_at=datetime(2018, 6, day, tzinfo=UTC), fields={"value": day}) for day in (1, 2, 3)
]


class Adder:
    """Count how often a sum was made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, rows: Sequence[Row]) -> int:
        """Add the values up."""
        self.made += 1
        return sum(int(str(row.fields["value"])) for row in rows)


def test_the_same_rows_are_worked_on_once_for_each_function() -> None:
    rows, first, second = Rows(FOUND), Adder(), Adder()
    assert [worked_out(rows, first), worked_out(rows, first), worked_out(rows, second)] == [6, 6, 6]
    assert (first.made, second.made) == (1, 1)


def test_nothing_is_a_result_too() -> None:
    asked = []

    def nothing(rows: Sequence[Row]) -> None:
        asked.append(len(rows))

    rows = Rows(FOUND)
    assert worked_out(rows, nothing) is worked_out(rows, nothing) is None
    assert asked == [3]


def test_other_rows_are_worked_on_for_themselves_even_if_they_are_equal() -> None:
    adder = Adder()
    assert worked_out(Rows(FOUND), adder) == 6
    assert worked_out(Rows(FOUND[:2]), adder) == 3
    assert worked_out(Rows(FOUND), adder) == 6
    assert adder.made == 3


def test_rows_are_a_tuple_and_a_part_of_them_is_a_plain_one() -> None:
    rows, adder = Rows(FOUND), Adder()
    assert rows == tuple(FOUND)
    assert type(rows[:2]) is tuple
    assert [worked_out(rows[:2], adder), worked_out(rows[:2], adder)] == [3, 3]
    assert adder.made == 2
