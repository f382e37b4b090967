"""Hold a query to its seconds and, where the process is the query's own, to its memory.

The engine looks for an interrupt between blocks of 2048 rows. So these cannot be interrupted:

* one call of a function on one huge value, such as ``repeat('x', 2000000000)`` or ``levenshtein``
  of two long texts, and
* an expression of constants, which the engine works out before the query starts.

Therefore the query runs in a thread of its own. The caller waits for its seconds and `GRACE_S`
more, then it gets its error, and the thread is left behind: it ends by itself at the engine's next
look, or with the process. The command line ends its process right then.

``memory_limit`` counts the engine's tables, sorts and hashes, but no text that a function builds
and not the result. Where the process has nothing else to do, as on the command line, the system
holds it to `EXTRA_MEMORY_BYTES` beyond what it had (on Linux; elsewhere there is no such limit).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import duckdb
import pyarrow as pa

from backtester.errors import BacktesterError, UsageError

LONGEST_S: Final = 86_400.0
GRACE_S: Final = 1.0
EXTRA_MEMORY_BYTES: Final = 3 << 30
_KNOCK_EVERY_S: Final = 0.02

_FAILURES: Final = (
    BacktesterError,
    duckdb.Error,
    pa.ArrowException,
    OSError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)

_Result = TypeVar("_Result")


class Interrupter:
    """Stop a query from another thread.

    Interrupting a connection once is not enough: an interrupt is lost if it comes between the
    planning of a query and its start. So it is repeated, and the query's thread asks as well.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._interrupt: Callable[[], None] | None = None

    @property
    def stopped(self) -> bool:
        """Whether the time is up, or the caller is gone."""
        return self._stopped.is_set()

    def watch(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Take the connection that is to be interrupted."""
        self._interrupt = connection.interrupt

    def knock(self) -> None:
        """Ask the query to stop."""
        self._stopped.set()
        if self._interrupt is None:
            return
        try:
            self._interrupt()
        except duckdb.ConnectionException:
            # It was closed a moment ago, so there is nothing left to stop.
            self._interrupt = None


def checked_time_limit(seconds: float) -> float:
    """Return a time limit that can be kept.

    Raises:
        UsageError: It is no number of seconds above 0, or more than a day.
    """
    # NaN fails every comparison, so it is refused here too.
    if not 0 < seconds <= LONGEST_S:
        raise UsageError(
            f"a time limit of {seconds:g} s cannot be kept: give seconds above 0, up to "
            f"{LONGEST_S:.0f}"
        )
    return seconds


def within(seconds: float, work: Callable[[Interrupter], _Result]) -> _Result:
    """Do some work in a thread of its own and return what it returns.

    Args:
        seconds: When the work is told to stop; `GRACE_S` later it is left behind.
        work: Gives its connection to the interrupter and asks it between steps.

    Raises:
        UsageError: It took too long.
    """
    done: Future[_Result] = Future()
    interrupter = Interrupter()

    def task() -> None:
        try:
            done.set_result(work(interrupter))
        except _FAILURES as error:
            done.set_exception(error)
        finally:
            if not done.done():
                # What gets here is a fault of our own; the thread prints its traceback.
                done.set_exception(RuntimeError("the thread of a query died"))

    threading.Thread(target=task, name="query", daemon=True).start()
    try:
        wait((done,), timeout=seconds)
        waited = 0.0
        while not done.done() and waited < GRACE_S:
            interrupter.knock()
            wait((done,), timeout=_KNOCK_EVERY_S)
            waited += _KNOCK_EVERY_S
    finally:
        # Also when the caller was interrupted while it waited.
        if not done.done():
            interrupter.knock()
    if interrupter.stopped and (not done.done() or done.exception() is not None):
        raise UsageError(
            f"the query was stopped after {seconds:g} s: narrow it with WHERE or LIMIT, or give "
            "it more time"
        )
    return done.result()


@contextmanager
def memory_ceiling(*, own_process: bool) -> Iterator[None]:
    """Hold the process to `EXTRA_MEMORY_BYTES` beyond what it has, where it can be told.

    Args:
        own_process: Nothing else is done by this process; else nothing is limited.
    """
    if not own_process or sys.platform != "linux":
        yield
        return
    import resource  # there is none on every platform

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    ceiling = pages * os.sysconf("SC_PAGE_SIZE") + EXTRA_MEMORY_BYTES
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([ceiling, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
