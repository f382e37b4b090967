"""The bar that long commands draw on standard error, one line where nobody watches."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


class StepBar:
    """Draw the steps of a command while the block runs; its children say what a step is.

    Args:
        word: What the command does.
        unit: What is counted.
    """

    def __init__(self, word: str, unit: str) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn(word),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"{unit}  {{task.fields[words]}}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._word = word
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing."""
        self._bar.stop()
