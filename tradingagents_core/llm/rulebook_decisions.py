"""Fill the typed decisions of the rulebook model, from the same points that its debaters count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tradingagents_core.llm.rulebook_prompt import Prompt, missing_reason
from tradingagents_core.llm.rulebook_rules import (
    DIRECTIONS,
    Adjustment,
    Assessment,
    assess,
    lesson_rule,
    six_digits,
    stop_loss,
    tier_at,
    volatility_rule,
)
from tradingagents_core.llm.rulebook_texts import in_words, score_in_words, signed, tallied_score

Field = str | float | None
Document = Mapping[str, Field]

ACTIONS: Mapping[str, str] = {
    "Sell": "Sell",
    "Underweight": "Sell",
    "Hold": "Hold",
    "Overweight": "Buy",
    "Buy": "Buy",
}
STEPS: Mapping[str, str] = {
    "Sell": "Close the position, or stay out.",
    "Underweight": "Cut the position below its usual weight and add no money.",
    "Hold": "Keep what is held and open nothing.",
    "Overweight": "Build up to somewhat more than the usual weight.",
    "Buy": "Take the full position.",
}
SIZES: Mapping[str, str] = {
    "Sell": "none of the slot",
    "Underweight": "a quarter of the slot",
    "Hold": "as held",
    "Overweight": "three quarters of the slot",
    "Buy": "the full slot",
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Hold the tier that a prompt's evidence gives, and where it came from.

    Attributes:
        rating: One of the five tiers.
        basis: The evidence in words.
        seen: Findings on the figures; empty where the prompt holds none.
    """

    rating: str
    basis: str
    seen: Assessment


def read_evidence(prompt: Prompt) -> Reading:
    """Read the tier from figures, else from the plan, else from the debate's tally, else Hold.

    The verified figures come first because they are the only evidence that nobody has worded.
    """
    seen = assess(prompt.figures)
    if prompt.figures.values:
        return Reading(rating=seen.rating, basis=score_in_words(seen), seen=seen)
    declared = prompt.declared_rating("investment_plan", "Recommendation")
    if declared is not None:
        return Reading(rating=declared, basis="no figures; the research plan's word", seen=seen)
    tallied = tallied_score(prompt.text_of("debate_history", "debate"))
    if tallied is not None:
        basis = f"no figures; the debate's tally of {signed(tallied)}"
        return Reading(rating=tier_at(tallied), basis=basis, seen=seen)
    return Reading(rating="Hold", basis="no figures, so no point on either side", seen=seen)


def sentiment_report(prompt: Prompt) -> Document:
    """Fill a `SentimentReport`: always neutral with low confidence, for it reads no tone."""
    parts = []
    for name in ("news", "stocktwits", "reddit"):
        text = prompt.text_of(name, "data").strip()
        if not text:
            parts.append(f"{name}: nothing given")
        elif (reason := missing_reason(text)) is not None:
            parts.append(f"{name}: not available ({reason})")
        else:
            parts.append(f"{name}: {len(text.splitlines())} lines, their tone not judged")
    narrative = (
        f"{'; '.join(parts)}. The rulebook has no rule for the tone of a text, "
        "so it stays neutral and gives no point."
    )
    return {
        "overall_sentiment": "Neutral",
        "score": 5.0,
        "confidence": "low",
        "narrative": narrative,
    }


def research_plan(prompt: Prompt) -> Document:
    """Fill a `ResearchPlan` with the tier of the score."""
    reading = read_evidence(prompt)
    rationale = f"The rules read {reading.rating}: {reading.basis}."
    return {
        "recommendation": reading.rating,
        "rationale": _joined(rationale, in_words(reading.seen)),
        "strategic_actions": STEPS[reading.rating],
    }


def trader_proposal(prompt: Prompt) -> Document:
    """Fill a `TraderProposal`: the plan's direction, its size, and a stop two ATR below."""
    declared = prompt.declared_rating("investment_plan", "Recommendation")
    rating = declared or read_evidence(prompt).rating
    action = ACTIONS[rating]
    close = prompt.figures.number("close")
    level = stop_loss(prompt.figures)
    reasoning = f"The plan's tier is {rating}, which is traded as {action}."
    if action == "Buy" and level is not None:
        reasoning += " The stop is the close less two average true ranges."
    return {
        "action": action,
        "reasoning": reasoning,
        "entry_price": None if action == "Hold" else close,
        "stop_loss": None if action != "Buy" or level is None else six_digits(level),
        "position_sizing": SIZES[rating],
    }


def portfolio_decision(prompt: Prompt) -> Document:
    """Fill a `PortfolioDecision`: the tier, after the volatility rule and the lesson rule."""
    reading = read_evidence(prompt)
    calmed = volatility_rule(reading.rating, prompt.figures)
    taught = lesson_rule(calmed.rating, prompt.past_calls)
    summary = (
        f"{taught.rating}. The rules read {reading.rating}: {reading.basis}. "
        f"Volatility: {calmed.reason}. Lessons: {_lessons(prompt, taught)}."
    )
    return _decision(prompt, rating=taught.rating, summary=summary, seen=reading.seen)


def plain_decision(prompt: Prompt) -> Document:
    """Fill a `PortfolioDecision` by the score alone, for the variant without adjustments."""
    reading = read_evidence(prompt)
    summary = f"{reading.rating}. The rules read it from {reading.basis}."
    return _decision(prompt, rating=reading.rating, summary=summary, seen=reading.seen)


def reflection(prompt: Prompt) -> str:
    """Look back on one resolved decision in three or four sentences."""
    outcome = prompt.outcome
    rating = outcome.get("rating", "")
    shown_return, shown_alpha = outcome.get("raw_return", "n/a"), outcome.get("alpha", "n/a")
    opening = (
        f"The {rating or 'unrated'} call on {prompt.symbol or 'this instrument'} returned "
        f"{shown_return} over {outcome.get('horizon', 'n/a')} sessions, "
        f"alpha {shown_alpha} against {outcome.get('benchmark', 'n/a')}."
    )
    return f"{opening} {_verdict(DIRECTIONS.get(rating), prompt.outcome_number('alpha'))}"


DOCUMENTS: Mapping[str, Callable[[Prompt], Document]] = {
    "SentimentReport": sentiment_report,
    "ResearchPlan": research_plan,
    "TraderProposal": trader_proposal,
    "PortfolioDecision": portfolio_decision,
}
SCHEMA_OF_ROLE: Mapping[str, str] = {
    "Sentiment Analyst": "SentimentReport",
    "Research Manager": "ResearchPlan",
    "Trader": "TraderProposal",
    "Portfolio Manager": "PortfolioDecision",
}


def in_markdown(document: Document) -> str:
    """Write a document as declared lines, for a call that asks for plain text.

    The headers are those of the rendered decisions, so that a declared rating can be read.
    """
    lines = [
        f"**{key.replace('_', ' ').title()}**: {value}"
        for key, value in document.items()
        if value is not None
    ]
    action = document.get("action")
    if isinstance(action, str):
        lines.append(f"FINAL TRANSACTION PROPOSAL: **{action.upper()}**")
    return "\n\n".join(lines)


def _decision(prompt: Prompt, *, rating: str, summary: str, seen: Assessment) -> Document:
    thesis = in_words(seen) or "There is no figure to build a thesis on."
    return {
        "rating": rating,
        "executive_summary": f"{summary} {STEPS[rating]}",
        "investment_thesis": thesis,
        "price_target": None,
        "time_horizon": "until the next decision",
    }


def _lessons(prompt: Prompt, taught: Adjustment) -> str:
    if not prompt.text_of("lessons", "lessons").strip():
        return "none are shown"
    return taught.reason


def _verdict(direction: int | None, alpha: float | None) -> str:
    """Say what a result is to the rule that made the call."""
    if alpha is None:
        return (
            "Without an alpha the result says nothing about the rules. They are kept as they are."
        )
    if not direction:
        return (
            "Hold takes no side, so the alpha is neither with nor against the call. "
            "The rules are kept as they are."
        )
    if alpha * direction > 0:
        return (
            "The alpha is on the side of the call. "
            "The rules are kept, and this call counts as support for the same side."
        )
    if alpha == 0:
        return "An alpha of zero is on neither side. The rules are kept as they are."
    return (
        "The alpha is against the call. The thresholds are kept, for one result is no reason to "
        "move them. Two such calls on this side and none that went well, among the last three, "
        "cost it one tier."
    )


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
