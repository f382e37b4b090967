"""Code of the user's own, run so that nothing that it does can end a freeze as if all were well.

A vendor of one's own is somebody's Python in our process. It may raise anything, leave by
``sys.exit(0)`` or by ``os._exit(0)``: each becomes an error that names it. What ends the process
from C (a crash, a kill) leaves a code that is not 0 by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from backtester.errors import BacktesterError
from backtester.vendors.base import VendorError
from tradingagents_core.errors import CoreError, LookaheadError

OWN: Final = ":"
"""The sign by which a name is that of a class of the user's own, ``package.module:Class``."""


@contextmanager
def contained(vendor: str) -> Iterator[None]:
    """Run code of a vendor; nothing but an error of ours, or an interrupt, comes out.

    Vendors of the table are left alone: what they raise is a fault of our own.

    Args:
        vendor: Its name.

    Raises:
        VendorError: It raised what no vendor raises, or tried to end the process.
    """
    if OWN not in vendor:
        yield
        return
    try:
        with _no_way_out():
            yield
    except (BacktesterError, CoreError, LookaheadError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise VendorError(
            f"vendor {vendor} tried to end the process (exit {error.code!r:.20}): let it raise a "
            "VendorError instead"
        ) from error
    # The error's own words may hold anything, an address with a key among it.
    except BaseException as error:
        raise VendorError(
            f"vendor {vendor} failed ({type(error).__name__}; --debug says where): mend it, or let "
            "it raise a VendorError"
        ) from error


@contextmanager
def _no_way_out() -> Iterator[None]:
    """Make an error of ``os._exit`` in this process; in a child that was forked it is itself."""
    here, leave = os.getpid(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() != here:
            leave(status)
        raise SystemExit(status)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave
