"""The news tools. Headlines and texts are other people's words: each item stays on one line."""

from __future__ import annotations

from datetime import date
from functools import partial

from tradingagents_core.errors import DataUnavailable, ToolInputError
from tradingagents_core.protocols import Row, View
from tradingagents_core.tools.base import (
    Tool,
    ToolLimits,
    cut_notes,
    days_back,
    look_up,
    rows_from,
    title,
    withheld_clause,
    withheld_notes,
)
from tradingagents_core.tools.inputs import GlobalNewsArguments, NewsArguments
from tradingagents_core.tools.text import instant_text, one_line

_TABLE = "news"


def get_news(view: View, arguments: NewsArguments, limits: ToolLimits) -> str:
    """Print the news about one instrument, newest first."""
    identity = look_up(view, arguments.ticker)
    start, end = arguments.start_date, arguments.end_date
    if start is not None and end is not None and start > end:
        raise ToolInputError(f"start_date {start} is after end_date {end}: swap them")
    notes = cut_notes(view, start_date=start, end_date=end)
    newest = _newest(view, end)
    return _news(
        view,
        about=title(identity),
        instrument=identity.instrument,
        start=days_back(newest, limits.news_days) if start is None else min(start, newest),
        asked=start is not None,
        end=end,
        limit=limits.news_items,
        notes=notes,
    )


def get_global_news(view: View, arguments: GlobalNewsArguments, limits: ToolLimits) -> str:
    """Print news that belongs to no single instrument, newest first."""
    end = arguments.curr_date
    days = arguments.look_back_days or limits.global_news_days
    start = days_back(_newest(view, end), days)
    return _news(
        view,
        about="the world's markets",
        instrument=None,
        start=start,
        asked=False,
        end=end,
        limit=arguments.limit or limits.global_news_items,
        notes=cut_notes(view, curr_date=end),
    )


def _newest(view: View, end: date | None) -> date:
    return view.session if end is None else min(end, view.session)


def _news(
    view: View,
    *,
    about: str,
    instrument: str | None,
    start: date,
    asked: bool,
    end: date | None,
    limit: int,
    notes: list[str],
) -> str:
    view.require(_TABLE, instrument)
    read = view.rows if asked else partial(rows_from, view)
    rows = read(_TABLE, instrument, start=start, end=end, last=limit)
    if not rows and not view.rows(_TABLE, instrument, last=1):
        # A source that keeps recent items alone looks like silence in the past: it is said.
        also = withheld_clause(view, _TABLE, instrument, end=end)
        raise DataUnavailable(f"no news about {about} is on record up to {view.session}{also}")
    header = f"# News about {about}, {start} to {_newest(view, end)}, seen on {view.session}"
    if len(rows) == limit:
        notes = [*notes, f"# Only the newest {limit} items of the window are shown"]
    items = [_item(row) for row in reversed(rows)]
    return "\n".join(
        [
            header,
            *withheld_notes(view, _TABLE, instrument, end=end),
            *notes,
            *(items or ["# None in this window"]),
        ]
    )


def _item(row: Row) -> str:
    source = one_line(str(row.fields.get("source") or "unnamed source"), 80)
    headline = one_line(str(row.fields.get("title") or ""), 200)
    summary = row.fields.get("summary")
    told = f" | {one_line(str(summary))}" if summary else ""
    # Of an item with a date alone the hour is that of the day's end, and no reader shall trust it.
    mark = " (time estimated)" if row.fields.get("known_at_basis") == "estimated" else ""
    return f"- {instant_text(row.known_at)}{mark} | {source} | {headline}{told}"


NEWS = Tool(
    name="get_news",
    description=(
        "News about one symbol that was published in a window, newest first. A long list is cut "
        "to the newest items."
    ),
    args=NewsArguments,
    run=get_news,
)
GLOBAL_NEWS = Tool(
    name="get_global_news",
    description="News about economies and markets at large, newest first.",
    args=GlobalNewsArguments,
    run=get_global_news,
)
