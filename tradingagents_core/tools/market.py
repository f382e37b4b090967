"""The three market tools: price history, indicators and the verified snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from tradingagents_core.errors import ToolInputError
from tradingagents_core.indicators import MENU, YEAR, summarize
from tradingagents_core.protocols import Bars, Identity, View
from tradingagents_core.tools.base import (
    Tool,
    ToolLimits,
    cut_notes,
    days_back,
    look_up,
    title,
)
from tradingagents_core.tools.inputs import IndicatorArguments, PriceArguments, SnapshotArguments
from tradingagents_core.tools.text import (
    count_text,
    day_text,
    days_text,
    figure_text,
    price_text,
    quoted,
)

DEFAULT_SESSIONS = 30
MOST_SESSIONS = 300
RECENT_CLOSES = 5
_PRICES = frozenset({"high_52w", "low_52w"})


def get_stock_data(view: View, arguments: PriceArguments, limits: ToolLimits) -> str:
    """Print daily prices of a window as CSV."""
    identity = look_up(view, arguments.symbol)
    start, end = arguments.start_date, arguments.end_date
    if start is not None and end is not None and start > end:
        raise ToolInputError(f"start_date {start} is after end_date {end}: swap them")
    last = MOST_SESSIONS if start is not None else DEFAULT_SESSIONS
    bars = view.bars(identity.instrument, start=start, end=end, last=last)
    _require_rows(bars, identity, view)
    traded = f"{identity.exchange}, in {identity.currency}"
    lines = [
        f"# Daily prices of {title(identity)}, {traded}, seen on {view.session}",
        f"# {_window(bars)}; adjusted for splits up to this date, not for dividends",
        *_cap_notes(len(bars), last if start is not None else None),
        *cut_notes(view, start_date=start, end_date=end),
        "Date,Open,High,Low,Close,Volume",
        *_csv(bars),
    ]
    return "\n".join(lines)


def get_indicators(view: View, arguments: IndicatorArguments, limits: ToolLimits) -> str:
    """Print one or more indicators, one value a session."""
    names = _indicator_names(arguments.indicator)
    identity = look_up(view, arguments.symbol)
    end = arguments.curr_date
    start = None
    last = DEFAULT_SESSIONS
    if arguments.look_back_days is not None:
        newest = view.last_session if end is None else min(end, view.last_session)
        start = days_back(newest, arguments.look_back_days)
        last = MOST_SESSIONS
    series = view.indicators(identity.instrument, names, start=start, end=end, last=last)
    if len(series.sessions) == 0:
        raise _no_rows(identity, view)
    days = days_text(series.sessions)
    lines: list[str] = []
    for name in names:
        values = series.values[name].tolist()
        lines += [
            f"# {name} of {title(identity)}, seen on {view.session}",
            f"# {MENU[name]}",
            *_cap_notes(len(days), last if start is not None else None),
            *cut_notes(view, curr_date=end),
            *(f"{day}: {figure_text(value)}" for day, value in zip(days, values, strict=True)),
        ]
    return "\n".join(lines)


def get_verified_market_snapshot(
    view: View, arguments: SnapshotArguments, limits: ToolLimits
) -> str:
    """Print the latest bar with every indicator and summary figure at it."""
    identity = look_up(view, arguments.symbol)
    end = arguments.curr_date
    bars = view.bars(identity.instrument, end=end, last=YEAR)
    _require_rows(bars, identity, view)
    series = view.indicators(identity.instrument, tuple(MENU), end=end, last=1)
    shown = view.session if end is None else min(end, view.session)
    figures = summarize(bars)
    lines = [
        f"# Verified market snapshot of {title(identity)} as of {shown}",
        f"latest_session: {day_text(bars.sessions[-1])}",
        *(f"{name}: {price_text(value)}" for name, value in _latest_prices(bars)),
        f"volume: {count_text(bars.volume[-1].item())}",
        *(f"{name}: {figure_text(series.values[name][-1].item())}" for name in MENU),
        *(
            f"{name}: {price_text(value) if name in _PRICES else figure_text(value)}"
            for name, value in figures.items()
        ),
        f"recent_closes: {_recent_closes(bars)}",
        *cut_notes(view, curr_date=end),
    ]
    return "\n".join(lines)


def _indicator_names(text: str) -> tuple[str, ...]:
    asked = [part.strip().lower() for part in text.split(",") if part.strip()]
    unknown = [name for name in asked if name not in MENU]
    if unknown or not asked:
        raise ToolInputError(
            f"indicator {quoted(unknown[0] if unknown else text)} is not on the menu: "
            f"{', '.join(MENU)}"
        )
    return tuple(dict.fromkeys(asked))


def _require_rows(bars: Bars, identity: Identity, view: View) -> None:
    if len(bars) == 0:
        raise _no_rows(identity, view)


def _no_rows(identity: Identity, view: View) -> ToolInputError:
    return ToolInputError(
        f"no session of {identity.symbol} lies in that window: choose one with a trading day "
        f"up to {view.last_session}"
    )


def _window(bars: Bars) -> str:
    noun = "session" if len(bars) == 1 else "sessions"
    first, last = day_text(bars.sessions[0]), day_text(bars.sessions[-1])
    return f"{first} to {last}, {len(bars)} {noun}"


def _cap_notes(rows: int, cap: int | None) -> Iterator[str]:
    if rows == cap:
        yield f"# Only the newest {cap} sessions of the window are shown"


def _csv(bars: Bars) -> Iterator[str]:
    columns = zip(
        days_text(bars.sessions),
        bars.open.tolist(),
        bars.high.tolist(),
        bars.low.tolist(),
        bars.close.tolist(),
        bars.volume.tolist(),
        strict=True,
    )
    for day, *prices, volume in columns:
        yield ",".join((day, *map(price_text, prices), count_text(volume)))


def _latest_prices(bars: Bars) -> Iterator[tuple[str, float]]:
    yield "open", bars.open[-1].item()
    yield "high", bars.high[-1].item()
    yield "low", bars.low[-1].item()
    yield "close", bars.close[-1].item()


def _recent_closes(bars: Bars) -> str:
    days = days_text(bars.sessions[-RECENT_CLOSES:])
    closes = bars.close[-RECENT_CLOSES:].tolist()
    return ", ".join(f"{day} {price_text(close)}" for day, close in zip(days, closes, strict=True))


STOCK_DATA = Tool(
    name="get_stock_data",
    description=(
        "Daily open, high, low, close and volume of a symbol as CSV, oldest first. Prices are "
        "adjusted for splits known on the simulated date. Call it before any indicator."
    ),
    args=PriceArguments,
    run=get_stock_data,
)
INDICATORS = Tool(
    name="get_indicators",
    description=(
        "One technical indicator of a symbol, a value for each session, newest last. Names: "
        + ", ".join(MENU)
        + "."
    ),
    args=IndicatorArguments,
    run=get_indicators,
)
VERIFIED_SNAPSHOT = Tool(
    name="get_verified_market_snapshot",
    description=(
        "The latest finished session of a symbol with its exact prices, every indicator, returns, "
        "52-week range and volatility. The only source for exact figures in a report."
    ),
    args=SnapshotArguments,
    run=get_verified_market_snapshot,
)
