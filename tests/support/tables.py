"""Build rows of the optional tables in a line each, for snapshots made in memory."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime

import pyarrow as pa

from backtester.schema import TABLES


def instant(text: str | None) -> datetime | None:
    """Return a UTC instant from ISO text; None stays None, for undated rows."""
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)


def news_rows(rows: Iterable[tuple[str | None, str | None, str]]) -> pa.Table:
    """Make news from (instrument, instant, title); the title is the id as well."""
    return _table(
        "news",
        (
            {
                "instrument": owner, "id": title, "known_at": instant(at),
                "known_at_basis": "published", "source": "Wire", "title": title,
            }
            for owner, at, title in rows
        ),
    )  # fmt: skip


def macro_rows(
    rows: Iterable[tuple[str, str, str, float]], *, basis: str = "published"
) -> pa.Table:
    """Make macro rows from (series, period, instant of the release, value)."""
    names = {"CPIAUCSL": "Consumer Price Index", "UNRATE": "Unemployment Rate"}
    return _table(
        "macro",
        (
            {
                "series": series, "name": names.get(series, f"Series {series}"),
                "period": date.fromisoformat(period), "known_at": instant(at),
                "known_at_basis": basis, "value": value, "unit": "Percent",
            }
            for series, period, at, value in rows
        ),
    )  # fmt: skip


def social_rows(rows: Iterable[tuple[str, str, str | None, str, str | None]]) -> pa.Table:
    """Make posts from (instrument, platform, instant, text, mark); the text is the id as well."""
    return _table(
        "social",
        (
            {
                "instrument": owner, "id": text, "known_at": instant(at), "platform": platform,
                "text": text, "label": mark,
            }
            for owner, platform, at, text, mark in rows
        ),
    )  # fmt: skip


def odds_rows(rows: Iterable[tuple[str, str, str, str, float]]) -> pa.Table:
    """Make ticks from (market, question, outcome, instant, probability)."""
    return _table(
        "prediction_markets",
        (
            {
                "market": market, "question": question, "outcome": outcome,
                "known_at": instant(at), "probability": probability,
            }
            for market, question, outcome, at, probability in rows
        ),
    )  # fmt: skip


def _table(name: str, rows: Iterable[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=TABLES[name].arrow)
