"""Errors of the harness, one class for each reaction of the caller (here: each exit code).

    BacktesterError
    |- UsageError          2   the command, a flag, a config key or a name is wrong
    |  `- RunLocked        2   another process holds the run
    |- DataError           3   a run, snapshot, bar or cache record is missing or damaged
    |- CacheMiss           4   a strict replay found no recording
    |- RunStopped          1   a cell failed, and the run was told to stop there
    |- ProviderError       5   a vendor or model provider failed
    |- BudgetReached       6   a cap stopped the run; it can be resumed
    `- VerificationFailed  7   another results root, a leak, or a replay that reached for a network

`tradingagents_core.errors` holds the pipeline's own tree; its ``LookaheadError`` is exit 7, its
``SettingsError`` exit 2. Anything else that escapes is a fault of our own, exit 70.
"""

from __future__ import annotations


class BacktesterError(Exception):
    """Base of every expected error; the message is one line: what, where, what to do."""

    exit_code = 70


class UsageError(BacktesterError):
    """Report a wrong command, flag, config key, name or date."""

    exit_code = 2


class RunLocked(UsageError):
    """Report that another process is working on this run, and which."""


class RunStopped(BacktesterError):
    """Report that a run stopped at a failed cell because it was told to."""

    exit_code = 1


class DataError(BacktesterError):
    """Report a missing or damaged run, snapshot, bar, journal or cache record."""

    exit_code = 3


class CacheMiss(BacktesterError):
    """Report that a strict replay met a call without a recording."""

    exit_code = 4


class ProviderError(BacktesterError):
    """Report that a vendor or a model provider failed after its retries."""

    exit_code = 5


class BudgetReached(BacktesterError):
    """Report that a cap of the run was reached; the run can be resumed."""

    exit_code = 6


class VerificationFailed(BacktesterError):
    """Report another results root, or something from the future."""

    exit_code = 7
