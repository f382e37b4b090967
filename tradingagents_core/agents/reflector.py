"""The reflector: looks back on one decision whose result is known, and writes its lesson."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from tradingagents_core import prompts
from tradingagents_core.agents.calls import BoundModel, ask, said
from tradingagents_core.prompts import Brief
from tradingagents_core.protocols import Site
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.topology import REFLECTOR


@dataclass(frozen=True, kw_only=True)
class ReflectionRequest:
    """Ask for the lesson of one resolved decision.

    Attributes:
        cell: Cell id for sites.
        symbol: Symbol as it was valid at the decision.
        session: Decision session.
        trial: Repeat number.
        generation: Cache generation.
        rating: One of the five; empty for none.
        decision: The decision's Markdown.
        horizon: Sessions from the decision to the exit.
        raw_return: Return with dividends, a fraction.
        alpha: Against the benchmark, a fraction, or None.
        benchmark: Benchmark symbol.
        name: Name of the instrument at the decision; empty leaves it out.
        resolved: Day from which the result is known, the simulated date of the lesson; None
            means the decision session.
    """

    cell: str
    symbol: str
    session: date
    trial: int
    generation: int
    rating: str
    decision: str
    horizon: int
    raw_return: float
    alpha: float | None
    benchmark: str
    name: str = ""
    resolved: date | None = None


def reflect(
    model: BaseChatModel,
    request: ReflectionRequest,
    settings: PipelineSettings,
    config: RunnableConfig | None = None,
) -> str:
    """Return the lesson.

    Args:
        model: Who reflects.
        request: What on.
        settings: For the language.
        config: Callback handlers to tell, or None.

    Raises:
        ModelOutcome: The model gave no whole, good reply.
        ReplayMiss: A strict replay has no recording for the call.
    """
    site = Site(
        cell=request.cell, node=REFLECTOR, trial=request.trial, generation=request.generation
    )
    return said(ask(BoundModel.of(model), reflection_messages(request, settings), site, config))


def reflection_messages(
    request: ReflectionRequest, settings: PipelineSettings
) -> tuple[BaseMessage, BaseMessage]:
    """Return the prompt of a lesson."""
    name = prompts.one_line(request.name)
    brief = Brief(
        day=request.resolved or request.session,
        instrument=f"{request.symbol} ({name})" if name else request.symbol,
        benchmark=request.benchmark,
        notes=(f"Decision date: {request.session.isoformat()}",),
        language=settings.output_language,
    )
    outcome = prompts.outcome_text(
        raw_return=request.raw_return,
        alpha=request.alpha,
        horizon=request.horizon,
        benchmark=request.benchmark,
        rating=request.rating or "none",
    )
    blocks = (
        prompts.block("decision", "plan", request.decision),
        prompts.block("outcome", "report", outcome),
    )
    return (
        SystemMessage(content=prompts.system_text(brief, REFLECTOR, prompts.REFLECTOR_TASK)),
        HumanMessage(content=prompts.human_text(blocks, prompts.REFLECT_NOW)),
    )
