"""Posts of one platform about an instrument, as an analyst without tools is given them.

Neither authors nor votes are shown: votes are counted when posts are captured, and so they know
which post was right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tradingagents_core.errors import DataUnavailable
from tradingagents_core.protocols import Row, View
from tradingagents_core.tools.base import ToolLimits, days_back, rows_from, title
from tradingagents_core.tools.text import instant_text, one_line

SOCIAL = "social"
_POSTS = 30
_UNMARKED = "unmarked"


def social_posts(view: View, instrument: str, platform: str, limits: ToolLimits) -> str:
    """Print the posts of one platform about an instrument, newest first.

    Args:
        view: Data at the cutoff.
        instrument: The snapshot's own id.
        platform: As the table has it.
        limits: Its days of news bound the window.

    Raises:
        DataUnavailable: There is no such table, or it holds no post of the platform up to now.
    """
    view.require(SOCIAL, instrument)
    about = title(view.identity(instrument))
    start = days_back(view.session, limits.news_days)
    found = rows_from(view, SOCIAL, instrument, start=start, end=None)
    posts = _of(platform, found)
    if not posts and not _of(platform, view.rows(SOCIAL, instrument)):
        # A platform that keeps recent posts alone looks like silence in the past: it is said.
        raise DataUnavailable(
            f"no post on {platform} about {about} is on record up to {view.session}"
        )
    lines = [
        f"# Posts on {platform} about {about}, {start} to {view.session}, seen on {view.session}"
    ]
    if not posts:
        return "\n".join([*lines, "# None in this window"])
    marks = Counter(_mark(row) for row in posts)
    told = ", ".join(f"{count} {mark}" for mark, count in sorted(marks.items()))
    lines.append(f"# Their authors' own marks: {told}")
    if len(posts) > _POSTS:
        lines.append(f"# Only the newest {_POSTS} posts of the window are shown")
    return "\n".join([*lines, *(_line(row) for row in reversed(posts[-_POSTS:]))])


def _of(platform: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.fields["platform"] == platform]


def _mark(row: Row) -> str:
    label = row.fields.get("label")
    return one_line(str(label), 20).lower() if label else _UNMARKED


def _line(row: Row) -> str:
    return f"- {instant_text(row.known_at)} | {_mark(row)} | {one_line(str(row.fields['text']))}"
