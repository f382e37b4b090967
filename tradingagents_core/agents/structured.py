"""Ask for a typed decision, and read what comes back in a fixed order.

1. The typed reply, as the model's capability allows (schema, forced function, JSON object).
2. A line in the failed reply's own text that declares the headline (the rating, the action).
3. Up to ``max_repairs`` further calls that quote what was wrong, each read the same way.
4. One plain call, read for a declared line.
5. Nothing: there is no rating. It is never a default.

Bindings are bare and parsing is ours: the library's structured-output chains cost several times a
call and hide the reply that failed. A transport failure is none of this ladder's business and
passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from pydantic import BaseModel

from tradingagents_core import prompts
from tradingagents_core.agents.calls import BoundModel, CellContext, ask, call_arguments
from tradingagents_core.decisions import (
    DECISION,
    Filled,
    Form,
    fill,
    response_schema,
)
from tradingagents_core.errors import ModelOutcome
from tradingagents_core.llm.capabilities import structured_method_of
from tradingagents_core.llm.capability_table import StructuredMethod
from tradingagents_core.protocols import RatingSource, Reply, ToolCall
from tradingagents_core.ratings import DeclaredWord, read_declared


@dataclass(frozen=True, kw_only=True)
class Question:
    """Hold what is asked, apart from the form.

    Attributes:
        node: Who asks.
        system: System message.
        blocks: Quoted material.
        closing: Lines after it.
    """

    node: str
    system: str
    blocks: tuple[str, ...]
    closing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Hold what was decided.

    Attributes:
        text: Markdown rendered from the typed value, or the reply's own text.
        value: The typed value, or None.
        word: Headline of the form: the rating, the action; None where none was read.
        source: How the headline was read.
    """

    text: str
    value: BaseModel | None
    word: str | None
    source: RatingSource


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """Hold one failed or good typed attempt.

    Attributes:
        filled: Typed value, or the problem in words.
        text: The reply's own text; empty where a cut or refused reply must not be read.
    """

    filled: Filled
    text: str


class FormCaller:
    """Ask one model for one form; built once, used by every cell and thread."""

    def __init__(self, model: BaseChatModel, form: Form, *, max_repairs: int) -> None:
        self._form = form
        self._plain = BoundModel.of(model)
        self._method = structured_method_of(model)
        self._typed = bind_form(model, form, self._method)
        self._attempts = 0 if self._method == "none" else max_repairs + 1
        in_words = self._method == "json_mode"
        self._closing = prompts.json_closing(form) if in_words else prompts.form_closing(form)

    def answer(self, context: CellContext, question: Question) -> Answer:
        """Ask until something is read or the ladder ends.

        Raises:
            ModelOutcome: A transport failure; or, for a form that is no portfolio decision, a
                last attempt that gave no text to go on with.
            ReplayMiss: A strict replay has no recording for a call.
        """
        problem = text = ""
        for number in range(self._attempts):
            attempt = self._attempt(context, question, number, problem=problem, rejected=text)
            value = attempt.filled.value
            if value is not None:
                return self._typed_answer(value, repaired=number > 0)
            found = self._declared(attempt.text)
            if found.word is not None:
                return Answer(text=attempt.text, value=None, word=found.word, source=found.source)
            problem, text = attempt.filled.problem, attempt.text
        return self._plain_answer(context, question, text)

    def _attempt(
        self, context: CellContext, question: Question, number: int, *, problem: str, rejected: str
    ) -> _Attempt:
        blocks, closing = question.blocks, (*question.closing, self._closing)
        if number:
            blocks = (*blocks, prompts.rejected_block(rejected)) if rejected else blocks
            closing = (*question.closing, prompts.repair_closing(problem), self._closing)
        site = context.site(
            question.node, 0, attempt=number, validate=self._problem, free_text=False
        )
        try:
            sent = _messages(question.system, blocks, closing)
            reply = ask(self._typed, sent, site, context.config)
        except ModelOutcome as outcome:
            return _failed(outcome)
        text = str(reply.text)
        return _Attempt(
            filled=fill(self._form, self._payload(text, call_arguments(reply))), text=text
        )

    def _problem(self, reply: Reply) -> str | None:
        """Say why a reply is no answer; recorded replies are judged by it before they are kept."""
        return fill(self._form, self._payload(reply.text, reply.tool_calls)).problem or None

    def _payload(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Return a reply's JSON text: the arguments of the form's function, else its text."""
        return next((call.args for call in calls if call.name == self._form.name), text)

    def _plain_answer(self, context: CellContext, question: Question, earlier: str) -> Answer:
        closing = (*question.closing, prompts.plain_closing(self._form))
        site = context.site(question.node, 0, attempt=self._attempts)
        try:
            sent = _messages(question.system, question.blocks, closing)
            reply = ask(self._plain, sent, site, context.config)
        except ModelOutcome as outcome:
            if outcome.unheard or self._form is not DECISION:
                raise
            return Answer(text=outcome.text or earlier, value=None, word=None, source="none")
        text = str(reply.text).strip()
        found = self._declared(text)
        return Answer(text=text or earlier, value=None, word=found.word, source=found.source)

    def _typed_answer(self, value: BaseModel, *, repaired: bool) -> Answer:
        return Answer(
            text=self._form.render(value),
            value=value,
            word=getattr(value, self._form.headline),
            source="repaired" if repaired else "structured",
        )

    def _declared(self, text: str) -> DeclaredWord:
        return read_declared(text, self._form.vocabulary)


def bind_form(model: BaseChatModel, form: Form, method: StructuredMethod) -> BoundModel:
    """Bind a form to a model in the way that it can take it."""
    schema = response_schema(form)
    if method == "function_calling":
        function = {"name": form.name, "description": schema["description"], "parameters": schema}
        tool = {"type": "function", "function": function}
        return BoundModel.of(model.bind_tools([tool], tool_choice=form.name))
    response_format: dict[str, Any] = {"type": "json_object"}
    if method == "json_schema":
        wanted = {"name": form.name, "schema": schema, "strict": True}
        response_format = {"type": "json_schema", "json_schema": wanted}
    return BoundModel.of(model, response_format=response_format)


def _messages(
    system: str, blocks: tuple[str, ...], closing: tuple[str, ...]
) -> tuple[SystemMessage, HumanMessage]:
    return (
        SystemMessage(content=system),
        HumanMessage(content=prompts.human_text(blocks, *closing)),
    )


def _failed(outcome: ModelOutcome) -> _Attempt:
    """Turn an attempt without an answer into a problem to quote; where no model spoke, it passes.

    The text of an invalid reply may still declare its headline. A cut, refused or filtered text
    may not: what it goes on to say is not known.
    """
    if outcome.unheard:
        raise outcome
    problem = prompts.OUTCOME_PROBLEMS.get(outcome.kind, outcome.message)
    text = outcome.text if outcome.kind == "invalid" else ""
    return _Attempt(filled=Filled(value=None, problem=problem), text=text)
