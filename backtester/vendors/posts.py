"""Posts of a social platform: who wrote them is not stored, nor how many liked them.

An author is a person whose name no backtest needs. Votes are counted when posts are captured, long
after they were written, and would tell which of them turned out right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from backtester.schema import TABLES
from backtester.vendors.base import NoData, Wanted

_TABLE = "social"


@dataclass(frozen=True, kw_only=True)
class Post:
    """Hold one post.

    Attributes:
        id: The platform's id.
        known_at: Instant from which this text is public; None where nothing says it.
        text: As published.
        label: The author's own mark, in lower case, or None.
    """

    id: str
    known_at: datetime | None
    text: str
    label: str | None = None


def posts_table(platform: str, posts: Sequence[Post], wanted: Wanted) -> pa.Table:
    """Return the posts of the wanted days as rows of the table; undated ones are left out.

    Args:
        platform: Name of the platform.
        posts: As they came.
        wanted: Whose instrument and days.

    Raises:
        NoData: None is of these days, with what the platform has instead.
    """
    first, end = _instant(wanted.start), _instant(wanted.end + timedelta(days=1))
    end = min(end, wanted.captured_at.astimezone(UTC))
    dated = [(post.known_at, post) for post in posts if post.known_at is not None]
    kept = [(known_at, post) for known_at, post in dated if first <= known_at < end]
    if not kept:
        raise NoData(_nothing(platform, [known_at for known_at, _ in dated], wanted))
    rows = [
        {
            "instrument": wanted.instrument,
            "id": post.id,
            "known_at": known_at,
            "platform": platform,
            "text": post.text,
            "label": post.label,
        }
        for known_at, post in kept
    ]
    return pa.Table.from_pylist(rows, schema=TABLES[_TABLE].arrow)


def coverage_notes(platform: str, posts: Sequence[Post], wanted: Wanted) -> tuple[str, ...]:
    """Say from when on the posts reach, where that is later than what was wanted."""
    oldest = min((post.known_at for post in posts if post.known_at is not None), default=None)
    if oldest is None or oldest.date() <= wanted.start:
        return ()
    note = (
        f"{platform} gives recent posts alone: those of {wanted.symbol} begin on {oldest.date()}, "
        "and days before are unknown, not silent"
    )
    return (note,)


def _nothing(platform: str, dated: Sequence[datetime], wanted: Wanted) -> str:
    if not dated:
        return f"{platform} has no post about {wanted.symbol}"
    return (
        f"{platform} gives recent posts alone: those about {wanted.symbol} are of "
        f"{min(dated).date()} to {max(dated).date()}, none of {wanted.start} to {wanted.end}"
    )


def _instant(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
