"""Pipelines for the audit to find, in a module of their own: another process imports them.

Where one needs the snapshot's folder, the test puts it into ``LEAKY_SNAPSHOT``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from backtester.snapshots.snapshot import open_folder
from backtester.snapshots.view import AsOfView
from tradingagents_core.errors import NoMarketData


def honest(view: AsOfView, ticker: str, session: date) -> Mapping[str, object]:
    """Read everything through the view."""
    bars = view.bars(ticker, last=5)
    identity = view.identity(ticker)
    news = [row.fields["title"] for row in view.rows("news", ticker)]
    return {
        "prompt": f"{session}: {identity.name} closed at {bars.close[-1]}; news: {news}",
        "closes": bars.close,
        "seen": view.cutoff,
    }


def next_close_of(snapshot: Any, ticker: str, session: date) -> float:
    """Return the close of the session after one."""
    bars = snapshot.bars(ticker)
    at = int(np.searchsorted(bars.sessions, np.datetime64(session), side="right"))
    return float(bars.close[at]) if at < len(bars) else 0.0


def behind_the_view(view: AsOfView, ticker: str, session: date) -> str:
    """Read t+1 from the snapshot that the view stands in front of."""
    return f"tomorrow: {next_close_of(view._snapshot, ticker, session)}"


def later_news(view: AsOfView, ticker: str, session: date) -> str:
    """Read every headline that there is."""
    rows = view._snapshot.table("news").to_pylist()
    return "\n".join(row["title"] for row in rows if row["instrument"] == ticker)


_KEPT: dict[str, Any] = {}


def remembers_a_snapshot(view: AsOfView, ticker: str, session: date) -> str:
    """Keep the snapshot of the first call in a global, and read t+1 from it ever after."""
    snapshot = _KEPT.setdefault("snapshot", view._snapshot)
    if session == date(2018, 1, 5):
        return "nothing yet"
    return f"tomorrow: {next_close_of(snapshot, ticker, session)}"


def remembers_or_shuffles(view: AsOfView, ticker: str, session: date) -> str:
    """Do the one for AAA and the other for everything else."""
    if ticker == "AAA":
        return remembers_a_snapshot(view, ticker, session)
    return by_hash_order(view, ticker, session)


def opens_parquet(view: AsOfView, ticker: str, session: date) -> str:
    """Open the file past the view, through a C library that tells Python of nothing."""
    table = pq.read_table(str(Path(os.environ["LEAKY_SNAPSHOT"]) / "bars.parquet"))
    return f"the file has {table.num_rows} rows"


def opens_by_our_own_door(view: AsOfView, ticker: str, session: date) -> str:
    """Open the snapshot again, as a program that uses this package may."""
    snapshot = open_folder(Path(os.environ["LEAKY_SNAPSHOT"]))
    return f"tomorrow: {next_close_of(snapshot, ticker, session)}"


def remembers_on_disk(view: AsOfView, ticker: str, session: date) -> str:
    """Look t+1 up once, and read it from a file of its own ever after."""
    memo = Path(os.environ["LEAKY_SNAPSHOT"]).parents[2] / f"memo-{ticker}-{session}"
    if not memo.exists():
        memo.write_text(str(next_close_of(view._snapshot, ticker, session)))
    return memo.read_text()


def leaves_a_thread_behind(view: AsOfView, ticker: str, session: date) -> str:
    """Begin what goes on for an hour, as a client's pool of threads may."""
    Thread(target=sleep, args=(3600,)).start()
    return str(view.bars(ticker, last=1).close[0])


def returns_nothing(view: AsOfView, ticker: str, session: date) -> None:
    """Forget to return what was worked out."""
    view.bars(ticker, last=5)


def knows_the_clock(view: AsOfView, ticker: str, session: date) -> str:
    """Write the day on which the program runs."""
    return f"retrieved on {datetime.now(UTC).date()}"


def by_hash_order(view: AsOfView, ticker: str, session: date) -> str:
    """Write a set in whatever order it has."""
    return " ".join({f"word{number}" for number in range(40)})


def asks_the_network(view: AsOfView, ticker: str, session: date) -> str:
    """Ask somebody, and hide that it failed."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    return "nobody answered"


def raises_at_times(view: AsOfView, ticker: str, session: date) -> str:
    """Raise on one of the dates."""
    if session == date(2018, 1, 5):
        raise NoMarketData("none on that day")
    return str(view.bars(ticker, last=1).close[0])


def always_raises(view: AsOfView, ticker: str, session: date) -> str:
    """Raise whatever is asked."""
    raise ValueError("broken")


def returns_an_object(view: AsOfView, ticker: str, session: date) -> object:
    """Return what cannot be compared."""
    return {"model": object()}
