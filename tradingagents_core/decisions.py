"""The typed decisions: what a model fills in, how it is read, and the Markdown made of it.

Each schema's field descriptions are instructions to the model. The typed value is the result; the
Markdown is rendered from it with fixed headers and is never parsed back. Text from a model that
does not fit is described in this project's own words, because the description is quoted in the
repair prompt and must not change with the validation library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tradingagents_core.ratings import RATING_WORDS, Rating, Vocabulary, tier_of

Action = Literal["Buy", "Hold", "Sell"]
Confidence = Literal["low", "medium", "high"]
SentimentBand = Literal[
    "Bullish", "Mildly Bullish", "Neutral", "Mixed", "Mildly Bearish", "Bearish"
]

_NULL_LIKE = frozenset(
    {"", "-", "--", "—", "n/a", "n.a.", "na", "nan", "nil", "none", "null", "tbd", "unknown"}
    | {"not applicable", "not available", "not specified", "unspecified"}
)
_PRICE = re.compile(r"^[$€£¥]?\s*(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)\s*(?:[A-Z]{3})?$")
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.IGNORECASE | re.DOTALL)


def _null_like(value: object) -> object:
    """Turn what models write for "no value" into None."""
    if isinstance(value, str) and value.strip().casefold() in _NULL_LIKE:
        return None
    return value


def _no_flag(value: object) -> object:
    """Refuse true and false, which would pass for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a flag is no number")
    return value


def _price(value: object) -> object:
    """Turn "None" into None and "$1,250.00" into 1250.0; a range stays and is refused."""
    value = _no_flag(_null_like(value))
    if isinstance(value, str) and (match := _PRICE.match(value.strip())):
        return float(match[1].replace(",", ""))
    return value


def _tier(value: object) -> object:
    """Accept a tier in any case or known language; the field always holds the English word."""
    return (tier_of(value) or value) if isinstance(value, str) else value


def _one_of(words: Sequence[str]) -> BeforeValidator:
    """Accept one of the words in any case."""
    forms = {word.casefold(): word for word in words}

    def spelled(value: object) -> object:
        return forms.get(value.strip().casefold(), value) if isinstance(value, str) else value

    return BeforeValidator(spelled)


RatingField = Annotated[Rating, BeforeValidator(_tier)]
ActionField = Annotated[Action, _one_of(get_args(Action))]
ConfidenceField = Annotated[Confidence, _one_of(get_args(Confidence))]
BandField = Annotated[SentimentBand, _one_of(get_args(SentimentBand))]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Price = Annotated[_Positive | None, BeforeValidator(_price)]
Score = Annotated[float, BeforeValidator(_no_flag), Field(ge=0, le=10, allow_inf_nan=False)]
OptionalText = Annotated[str | None, BeforeValidator(_null_like)]
Text = Annotated[str, Field(min_length=1)]


class _Typed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True)


def _purpose(words: str) -> ConfigDict:
    """Say to the model what a schema is for; a docstring would be gone under ``python -OO``."""
    return ConfigDict(json_schema_extra={"description": words})


class SentimentReport(_Typed):
    """Say how news and social posts lean."""

    model_config = _purpose("Say how news and social posts lean.")

    overall_sentiment: BandField = Field(
        description="The band that the material as a whole falls in. Neutral where nothing leans, "
        "Mixed where strong voices pull both ways."
    )
    score: Score = Field(
        description="0 (as bearish as can be) to 10 (as bullish as can be), 5 in the middle; it "
        "must agree with the band."
    )
    confidence: ConfidenceField = Field(
        description="low where sources are few, missing or at odds; high only where many "
        "independent ones agree."
    )
    narrative: Text = Field(
        description="The report in Markdown: what each source says, where they differ, which "
        "events drive the tone, what is missing. Quote dates; invent no source."
    )


class ResearchPlan(_Typed):
    """Settle the debate of the bull and the bear."""

    model_config = _purpose("Settle the debate of the bull and the bear.")

    recommendation: RatingField = Field(
        description="One of Buy, Overweight, Hold, Underweight, Sell. Hold only where the two "
        "sides are truly balanced, not to avoid a choice."
    )
    rationale: Text = Field(
        description="Which arguments carried the day and why, with the figures they rest on, and "
        "which were set aside."
    )
    strategic_actions: Text = Field(
        description="Concrete steps for the trader: size, entry, what would end the position."
    )


class TraderProposal(_Typed):
    """Turn the research plan into one trade."""

    model_config = _purpose("Turn the research plan into one trade.")

    action: ActionField = Field(
        description="Buy, Hold or Sell: whether to trade, and on which side. How much conviction "
        "the position deserves is decided later."
    )
    reasoning: Text = Field(
        description="Two to four sentences that tie the action to the plan and to the reports."
    )
    entry_price: Price = Field(
        default=None, description="Price to enter at, in the quote currency; null if at market."
    )
    stop_loss: Price = Field(
        default=None, description="Price at which the trade is given up; null if there is none."
    )
    position_sizing: OptionalText = Field(
        default=None, description="Size as a share of the slot, in words; null if unsaid."
    )


class PortfolioDecision(_Typed):
    """Decide on the instrument, after the risk debate."""

    model_config = _purpose("Decide on the instrument, after the risk debate.")

    rating: RatingField = Field(
        description="One of Buy, Overweight, Hold, Underweight, Sell. Buy and Sell need "
        "conviction; Overweight and Underweight are the tilts; Hold means no view either way."
    )
    executive_summary: Text = Field(
        description="Two to four sentences: what to do, how much, the level that would change it."
    )
    investment_thesis: Text = Field(
        description="The case in full, from the reports and both debates, with lessons of earlier "
        "decisions where some are given. Figures only as the reports have them."
    )
    price_target: Price = Field(
        default=None, description="Target in the quote currency; null if none can be justified."
    )
    time_horizon: OptionalText = Field(
        default=None, description="How long the view holds, for example '1-2 weeks'; null if open."
    )


# ------------------------------------------------------------------------------------- rendering


def _sections(pairs: Sequence[tuple[str, str | None]]) -> str:
    return "\n\n".join(f"**{header}**: {value}" for header, value in pairs if value is not None)


def _number(value: float | None) -> str | None:
    """Print a price with two decimals, a fraction of a unit with six significant digits."""
    if value is None:
        return None
    return f"{value:.2f}" if value >= 1 else f"{value:.6g}"


def render_sentiment(report: SentimentReport) -> str:
    """Return the report's Markdown."""
    head = _sections(
        [
            ("Overall Sentiment", report.overall_sentiment),
            ("Score", f"{report.score:g} / 10"),
            ("Confidence", report.confidence),
        ]
    )
    return f"{head}\n\n{report.narrative}"


def render_plan(plan: ResearchPlan) -> str:
    """Return the plan's Markdown."""
    return _sections(
        [
            ("Recommendation", plan.recommendation),
            ("Rationale", plan.rationale),
            ("Strategic Actions", plan.strategic_actions),
        ]
    )


def render_proposal(proposal: TraderProposal) -> str:
    """Return the proposal's Markdown with the closing line that names the action."""
    body = _sections(
        [
            ("Action", proposal.action),
            ("Reasoning", proposal.reasoning),
            ("Entry Price", _number(proposal.entry_price)),
            ("Stop Loss", _number(proposal.stop_loss)),
            ("Position Sizing", proposal.position_sizing),
        ]
    )
    return f"{body}\n\nFINAL TRANSACTION PROPOSAL: **{proposal.action.upper()}**"


def render_decision(decision: PortfolioDecision) -> str:
    """Return the decision's Markdown."""
    return _sections(
        [
            ("Rating", decision.rating),
            ("Executive Summary", decision.executive_summary),
            ("Investment Thesis", decision.investment_thesis),
            ("Price Target", _number(decision.price_target)),
            ("Time Horizon", decision.time_horizon),
        ]
    )


# ----------------------------------------------------------------------------------------- forms


@dataclass(frozen=True, kw_only=True)
class Form:
    """Hold one schema with everything that is done with it.

    Attributes:
        model: The schema.
        render: Markdown of a filled one.
        headline: Field that a declared line can stand in for.
        vocabulary: Labels and words of such a line.
    """

    model: type[BaseModel]
    render: Callable[[Any], str]
    headline: str
    vocabulary: Vocabulary

    @property
    def name(self) -> str:
        """Return the schema's name, which is its name on the wire too."""
        return self.model.__name__

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words that the headline may be, in the order of the schema."""
        return cast("tuple[str, ...]", get_args(self.model.model_fields[self.headline].annotation))


@dataclass(frozen=True, kw_only=True)
class Filled:
    """Hold a filled form, or what is wrong with the reply.

    Attributes:
        value: The typed decision, or None.
        problem: Empty where there is a value; else one sentence that a model can act on.
    """

    value: BaseModel | None
    problem: str = ""


def _words(*choices: str) -> dict[str, str]:
    return {choice.casefold(): choice for choice in choices}


_ACTIONS = get_args(Action)
_ACTION_WORDS = {form: tier for form, tier in RATING_WORDS.words.items() if tier in _ACTIONS}

SENTIMENT = Form(
    model=SentimentReport,
    render=render_sentiment,
    headline="overall_sentiment",
    vocabulary=Vocabulary(words=_words(*get_args(SentimentBand)), heads=frozenset({"sentiment"})),
)
PLAN = Form(
    model=ResearchPlan,
    render=render_plan,
    headline="recommendation",
    vocabulary=Vocabulary(
        words=RATING_WORDS.words,
        heads=frozenset({"rating", "recommendation"}),
        plain=RATING_WORDS.plain
        | {"empfehlung", "recommandation", "recomendación", "建议", "推荐", "推奨", "추천"},
        final=RATING_WORDS.final,
    ),
)
PROPOSAL = Form(
    model=TraderProposal,
    render=render_proposal,
    headline="action",
    vocabulary=Vocabulary(
        words=_ACTION_WORDS,
        heads=frozenset({"action"}),
        plain=frozenset({"trade", "操作", "行动", "aktion", "acción"}),
        final=frozenset({"final transaction proposal"}),
    ),
)
DECISION = Form(
    model=PortfolioDecision,
    render=render_decision,
    headline="rating",
    vocabulary=RATING_WORDS,
)
FORMS: Mapping[str, Form] = MappingProxyType(
    {form.name: form for form in (SENTIMENT, PLAN, PROPOSAL, DECISION)}
)


def canonical_json(value: object) -> str:
    """Return JSON text that is the same for equal values: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def typed_json(value: BaseModel | None) -> str:
    """Return the canonical JSON of a typed decision, ``null`` for None."""
    return canonical_json(None if value is None else value.model_dump(mode="json"))


def response_schema(form: Form) -> dict[str, Any]:
    """Return the form's JSON schema in the strict dialect that providers take.

    Every property is required and may be null where it is optional; limits that some servers
    refuse are left to our own validation and stand in the descriptions.
    """
    schema = form.model.model_json_schema()
    properties = {name: _property(spec) for name, spec in schema["properties"].items()}
    return {
        "type": "object",
        "description": schema["description"],
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _property(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: spec[key] for key in ("type", "enum", "description") if key in spec}
    if "anyOf" in spec:
        kept["anyOf"] = [{"type": choice["type"]} for choice in spec["anyOf"]]
    return kept


def fill(form: Form, text: str) -> Filled:
    """Read a form from a reply's text: a JSON object, bare, fenced or with words around it.

    Returns:
        The typed decision, or the problem in words.
    """
    found = _json_object(text)
    if found is None:
        return Filled(value=None, problem="the reply holds no JSON object")
    try:
        return Filled(value=form.model.model_validate(found))
    except ValidationError as error:
        return Filled(value=None, problem=_in_words(form, error))


def _json_object(text: str) -> dict[str, Any] | None:
    """Return the object that the reply is, or the first one in it, else None."""
    candidates = [text, *(match[1] for match in _FENCE.finditer(text))]
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        candidates.append(text[start : end + 1])
    for candidate in candidates:
        try:
            value = json.loads(candidate, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _in_words(form: Form, error: ValidationError) -> str:
    problems = []
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(detail["loc"][0]) if detail["loc"] else form.name
        if detail["type"] == "missing":
            problems.append(f"{name} is missing")
        elif detail["type"] == "literal_error":
            choices = get_args(form.model.model_fields[name].annotation)
            problems.append(f"{name} is not one of {', '.join(choices)}")
        elif detail["type"] == "string_too_short":
            problems.append(f"{name} is empty")
        else:
            description = form.model.model_fields[name].description
            problems.append(f"{name} does not fit; wanted: {description}")
    return "; ".join(dict.fromkeys(problems))
