"""Everything the pipeline can raise, one class for each reaction of its caller.

    LookaheadError (BaseException)   the future was reached: the run ends, nothing may catch it
    CoreError
    |- ToolInputError                 the model's tool arguments are wrong: answered as text
    |- DataUnavailable                a table or row is not there: answered as text
    |  `- NoMarketData                a core gap (bars): answered as text, cell marked degraded
    |- PipelineError                  this cell cannot be decided: it fails alone
    |  |- TurnLimitReached            a loop reached its limit
    |  |- ModelOutcome                a model attempt ended without an answer
    |  `- ReplayMiss                  a strict replay has no recording for a call
    `- SettingsError                  a setting is wrong or missing: nothing was started

`backtester.errors` says which exit code each of them ends in.
"""

from __future__ import annotations


class LookaheadError(BaseException):
    """Report that a row from after the cutoff was about to be seen.

    It derives from ``BaseException`` on purpose: no ``except Exception`` on the way, ours or a
    library's, may turn a leak into a sentence that a model reads.
    """


class CoreError(Exception):
    """Base of every expected error of the pipeline."""


class ToolInputError(CoreError):
    """Report tool arguments that cannot be used; the text is the tool's answer."""


class DataUnavailable(CoreError):
    """Report data that this view cannot give, with the reason in words."""


class NoMarketData(DataUnavailable):
    """Report that prices, a core table, are missing or stale at the cutoff."""


class PipelineError(CoreError):
    """Report that one cell cannot be decided.

    Attributes:
        error_class: Stable snake_case word that is stored with the cell.
    """

    error_class = "pipeline"


class TurnLimitReached(PipelineError):
    """Report that the graph did not end within its recursion limit."""

    error_class = "recursion_limit"


class ModelOutcome(PipelineError):
    """Report an attempt that ended without a whole, good reply.

    Args:
        kind: One of ``transport, rejected, content_filter, refusal, length, empty, invalid``.
        message: What happened, in words.
        text: The reply's own text where there was one, else an empty string.
    """

    error_class = "model_outcome"

    def __init__(self, kind: str, message: str, text: str = "") -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.text = text

    @property
    def unheard(self) -> bool:
        """Say whether no model heard the question, so that asking it again mends nothing."""
        return self.kind in ("transport", "rejected")


class ReplayMiss(PipelineError):
    """Report a call that a strict replay has no recording for.

    Args:
        key: The cache key that was looked up.
        message: Names node, ticker, session and trial.
        diff: Difference to the nearest recorded prompt of the same node; empty if there is none.
    """

    error_class = "replay_miss"

    def __init__(self, key: str, message: str, diff: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.diff = diff


class SettingsError(CoreError):
    """Report a setting that is wrong or missing, with what to write instead."""
