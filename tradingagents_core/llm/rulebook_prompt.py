"""Read a prompt of this pipeline: who is asked, about what, and what it was shown.

The rulebook model knows nothing but its messages. Figures count from two places alone, the market
report (a block of kind ``report``) and the answer of the verified-snapshot tool; text in any other
block is something that somebody said, whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from tradingagents_core.llm.rulebook_rules import (
    NO_FIGURES,
    Figures,
    PastCall,
    finite,
    read_figures,
)
from tradingagents_core.ratings import TIERS

SNAPSHOT_TOOL = "get_verified_market_snapshot"
NOT_AVAILABLE = ("DATA_UNAVAILABLE:", "NO_DATA_AVAILABLE:")

_BLOCK_OPEN = re.compile(r'^<block name="([a-z_]+)" kind="([a-z]+)">\n', re.MULTILINE)
_BLOCK_CLOSE = "</block>"
_HEADER = re.compile(r"^(Role|Simulated date|Instrument|Benchmark): (.+)$", re.MULTILINE)
_OUTCOME_LINE = re.compile(
    r"^(raw_return|alpha|horizon|benchmark|rating): (.+?)[ \t]*$", re.MULTILINE
)
# Free text of a lesson is indented, so only a lesson's own first line begins with a bracket.
_LESSON_TAG = re.compile(
    r"^\[\d{4}-\d\d-\d\d \| (\S+) \| (\w+) \| \S+ \| (\S+) \| \d+d\]$", re.MULTILINE
)
_DECLARED = re.compile(r"\*\*(\w+)\*\*: (\w+)\s*$")
_SYMBOL = re.compile(r"[^\s(,]+")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Hold one quoted block of a prompt.

    Attributes:
        kind: ``report, debate, plan, lessons`` or ``data``.
        text: The content between the tags, without the line ends next to them.
    """

    kind: str
    text: str


NO_BLOCK = Block(kind="", text="")


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """Hold one tool call that was made before, and its answer where one came back.

    Attributes:
        name: Tool name.
        args: Arguments as they were called with.
        text: The answer; empty where none is in the prompt.
    """

    name: str
    args: Mapping[str, object]
    text: str

    @property
    def missing_reason(self) -> str | None:
        """The reason that a tool gave for having no data, or None where it answered."""
        return missing_reason(self.text)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Hold what one prompt says.

    Attributes:
        role: Node name of the first system line, empty where there is none.
        date: Simulated date as written, empty where there is none.
        instrument: The instrument line as written.
        benchmark: Benchmark symbol.
        blocks: Block name -> block; the first of a name counts.
        tools: Tool calls made so far, in order, with their answers.
    """

    role: str
    date: str
    instrument: str
    benchmark: str
    blocks: Mapping[str, Block]
    tools: tuple[ToolAnswer, ...]

    @property
    def symbol(self) -> str:
        """The symbol that the instrument line begins with, empty where there is none."""
        found = _SYMBOL.match(self.instrument)
        return found.group() if found else ""

    @cached_property
    def figures(self) -> Figures:
        """The figures of the verified snapshot, from its tool or from the market report."""
        for answer in reversed(self.tools):
            if answer.name == SNAPSHOT_TOOL:
                return read_figures(answer.text)
        report = self.blocks.get("market_report", NO_BLOCK)
        return read_figures(report.text) if report.kind == "report" else NO_FIGURES

    @cached_property
    def past_calls(self) -> tuple[PastCall, ...]:
        """The resolved calls on this ticker that the lessons show, newest first."""
        lessons = _LESSON_TAG.findall(self.text_of("lessons", "lessons"))
        return tuple(
            PastCall(rating=rating, alpha=finite(alpha.removesuffix("%")))
            for symbol, rating, alpha in lessons
            if symbol == self.symbol and rating in TIERS
        )

    @cached_property
    def outcome(self) -> Mapping[str, str]:
        """The lines of the outcome that a reflection is asked for."""
        return dict(_OUTCOME_LINE.findall(self.blocks.get("outcome", NO_BLOCK).text))

    def outcome_number(self, key: str) -> float | None:
        """Return a line of the outcome as a number, or None where it is none."""
        return finite(self.outcome.get(key, ""))

    def declared_rating(self, block: str, label: str) -> str | None:
        """Return the tier that a plan declares under a label, the first one where it has more."""
        for line in self.text_of(block, "plan").splitlines():
            found = _DECLARED.match(line)
            if found and found.group(1) == label and found.group(2) in TIERS:
                return found.group(2)
        return None

    def text_of(self, name: str, *kinds: str) -> str:
        """Return a block's text where it is of one of these kinds, else an empty string."""
        block = self.blocks.get(name, NO_BLOCK)
        return block.text if block.kind in kinds else ""


def read_prompt(messages: Sequence[BaseMessage]) -> Prompt:
    """Read the messages of one call.

    Args:
        messages: System, human, assistant and tool messages in order. The first system message
            names role, date, instrument and benchmark; blocks are read from human messages.

    Returns:
        What they say; fields that nobody filled are empty.
    """
    header: dict[str, str] = {}
    blocks: dict[str, Block] = {}
    calls: list[tuple[str, str, Mapping[str, object]]] = []
    answers: dict[str, str] = {}
    for message in messages:
        if isinstance(message, HumanMessage):
            _read_blocks(content_text(message), blocks)
        elif isinstance(message, SystemMessage):
            if not header:
                header = _read_header(content_text(message))
        elif isinstance(message, AIMessage):
            calls += [(call["id"] or "", call["name"], call["args"]) for call in message.tool_calls]
        elif isinstance(message, ToolMessage):
            answers[message.tool_call_id] = _unwrapped(content_text(message))
    return Prompt(
        role=header.get("Role", ""),
        date=header.get("Simulated date", ""),
        instrument=header.get("Instrument", ""),
        benchmark=header.get("Benchmark", ""),
        blocks=blocks,
        tools=tuple(
            ToolAnswer(name=name, args=args, text=answers.get(call_id, ""))
            for call_id, name, args in calls
        ),
    )


def missing_reason(text: str) -> str | None:
    """Return the reason that a tool gave for having no data, or None where it answered."""
    for mark in NOT_AVAILABLE:
        if text.startswith(mark):
            return " ".join(text[len(mark) :].split())
    return None


def content_text(message: BaseMessage) -> str:
    """Return the text of a message; text parts of a list are joined, other parts left out."""
    content = message.content
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, str) else part.get("text", "") for part in content]
    return "".join(part for part in parts if isinstance(part, str))


def _read_header(text: str) -> dict[str, str]:
    """Read the header lines; they stand before the instructions, so the first of each counts."""
    header: dict[str, str] = {}
    for key, value in _HEADER.findall(text):
        header.setdefault(key, value.strip())
    return header


def _unwrapped(answer: str) -> str:
    """Take the block off a tool's answer where it is quoted as one."""
    opening = _BLOCK_OPEN.match(answer)
    if opening is None:
        return answer
    return answer[opening.end() :].removesuffix(_BLOCK_CLOSE).removesuffix("\n")


def _read_blocks(text: str, blocks: dict[str, Block]) -> None:
    """Add the blocks of one message; a tag inside a block opens nothing."""
    position = 0
    while (opening := _BLOCK_OPEN.search(text, position)) is not None:
        end = text.find(_BLOCK_CLOSE, opening.end())
        if end < 0:
            return
        name, kind = opening.groups()
        body = text[opening.end() : end].removesuffix("\n")
        blocks.setdefault(name, Block(kind=kind, text=body))
        position = end + len(_BLOCK_CLOSE)
