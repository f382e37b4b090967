"""The words by which people and models call economic series."""

from __future__ import annotations

from collections import Counter

import pytest

from tradingagents_core.tools.series import SERIES, plain, series_of


@pytest.mark.parametrize(
    ("word", "series"),
    [
        ("cpi", "CPIAUCSL"),
        ("CPI", "CPIAUCSL"),
        ("core_cpi", "CPILFESL"),
        ("Inflation", "CPIAUCSL"),
        ("unemployment", "UNRATE"),
        ("US unemployment-rate", "UNRATE"),
        ("fed funds", "DFF"),
        ("Fed Funds Rate", "DFF"),
        ("ten-year", "DGS10"),
        ("10-year treasury", "DGS10"),
        ("nonfarm payrolls", "PAYEMS"),
        ("real GDP", "GDPC1"),
        ("euro-area CPI", "CP0000EZ19M086NEST"),
        ("euro-area unemployment", "LRHUTTTTEZM156S"),
        ("euro-area GDP", "CLVMNACSCAB1GQEA19"),
        ("euro-area ten-year", "IRLTLT01EZM156N"),
        ("ECB", "ECBDFR"),
        ("dgs2", "DGS2"),
    ],
)
def test_a_plain_word_names_the_usual_series(word: str, series: str) -> None:
    assert series_of(word)[0] == series


def test_a_word_that_is_in_no_row_names_none() -> None:
    assert series_of("tulip prices") == ()
    assert series_of("") == ()


def test_ids_are_written_once_and_words_as_they_are_looked_up() -> None:
    assert [name for name, count in Counter(row.id for row in SERIES).items() if count > 1] == []
    words = [word for row in SERIES for word in row.words]
    assert [word for word in words if plain(word) != word] == []
    assert all(len(set(row.words)) == len(row.words) for row in SERIES)
