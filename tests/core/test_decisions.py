"""The typed decisions: what fits a form, what is wrong with what does not, and the Markdown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tradingagents_core.decisions import (
    DECISION,
    FORMS,
    PLAN,
    PROPOSAL,
    SENTIMENT,
    Form,
    PortfolioDecision,
    SentimentReport,
    canonical_json,
    fill,
    response_schema,
    typed_json,
)
from tradingagents_core.ratings import read_declared

GOOD: dict[str, dict[str, Any]] = {
    "SentimentReport": {
        "overall_sentiment": "Mildly Bullish",
        "score": 6.5,
        "confidence": "medium",
        "narrative": "News lean up, posts are split.",
    },
    "ResearchPlan": {
        "recommendation": "Overweight",
        "rationale": "Trend and earnings agree.",
        "strategic_actions": "Add a third, stop below 180.",
    },
    "TraderProposal": {
        "action": "Buy",
        "reasoning": "The plan leans up.",
        "entry_price": 194.32,
        "stop_loss": 186.38,
        "position_sizing": "half the slot",
    },
    "PortfolioDecision": {
        "rating": "Underweight",
        "executive_summary": "Trim.",
        "investment_thesis": "The debate was lost on valuation.",
        "price_target": 1250.5,
        "time_horizon": "1-2 weeks",
    },
}
RENDERED = {
    "SentimentReport": (
        "**Overall Sentiment**: Mildly Bullish\n\n**Score**: 6.5 / 10\n\n"
        "**Confidence**: medium\n\nNews lean up, posts are split."
    ),
    "ResearchPlan": (
        "**Recommendation**: Overweight\n\n**Rationale**: Trend and earnings agree.\n\n"
        "**Strategic Actions**: Add a third, stop below 180."
    ),
    "TraderProposal": (
        "**Action**: Buy\n\n**Reasoning**: The plan leans up.\n\n**Entry Price**: 194.32\n\n"
        "**Stop Loss**: 186.38\n\n**Position Sizing**: half the slot\n\n"
        "FINAL TRANSACTION PROPOSAL: **BUY**"
    ),
    "PortfolioDecision": (
        "**Rating**: Underweight\n\n**Executive Summary**: Trim.\n\n"
        "**Investment Thesis**: The debate was lost on valuation.\n\n"
        "**Price Target**: 1250.50\n\n**Time Horizon**: 1-2 weeks"
    ),
}


def filled(form: Form, **changes: Any) -> Any:
    return fill(form, json.dumps({**GOOD[form.name], **changes}))


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.name)
def test_a_filled_form_is_rendered_with_its_fixed_headers(form: Form) -> None:
    value = filled(form).value
    assert form.render(value) == RENDERED[form.name]


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.name)
def test_what_is_rendered_declares_the_headline_that_was_typed(form: Form) -> None:
    found = read_declared(form.render(filled(form).value), form.vocabulary)
    assert found.word == GOOD[form.name][form.headline]


def test_optional_parts_that_are_missing_are_not_rendered() -> None:
    value = filled(DECISION, price_target=None, time_horizon=None).value
    assert form_tail(DECISION.render(value)) == (
        "**Investment Thesis**: The debate was lost on valuation."
    )
    value = filled(PROPOSAL, entry_price=None, stop_loss=None, position_sizing=None).value
    assert form_tail(PROPOSAL.render(value)) == "FINAL TRANSACTION PROPOSAL: **BUY**"


def form_tail(markdown: str) -> str:
    return markdown.rsplit("\n\n", 1)[-1]


@pytest.mark.parametrize(
    "word",
    ["None", "none", "N/A", "n/a", "null", "NaN", "-", "", "  ", "unknown", "Not applicable"],
)
def test_a_word_for_nothing_in_an_optional_field_is_none(word: str) -> None:
    value = filled(DECISION, price_target=word, time_horizon=word).value
    assert (value.price_target, value.time_horizon) == (None, None)


@pytest.mark.parametrize(
    ("written", "price"),
    [("185.5", 185.5), ("$185.50", 185.5), ("1,250.00 USD", 1250.0), ("€ 12", 12.0), (7, 7.0)],
)
def test_a_price_that_is_written_as_text_is_a_number(written: object, price: float) -> None:
    assert filled(DECISION, price_target=written).value.price_target == price


@pytest.mark.parametrize("written", ["150-160", "about 150", "1.250,50", -5, 0, "1,25", True, []])
def test_a_price_that_cannot_be_one_is_refused_and_not_guessed(written: object) -> None:
    found = filled(DECISION, price_target=written)
    assert found.value is None
    assert found.problem.startswith("price_target does not fit; wanted: Target")


@pytest.mark.parametrize(
    ("written", "rating"),
    [("BUY", "Buy"), ("overweight ", "Overweight"), ("持有", "Hold"), ("Verkaufen", "Sell")],
)
def test_the_typed_rating_is_always_the_english_word(written: str, rating: str) -> None:
    assert filled(DECISION, rating=written).value.rating == rating


@pytest.mark.parametrize(
    ("form", "changes", "problem"),
    [
        (DECISION, {"rating": "Strong Buy"}, "rating is not one of Sell, Underweight, Hold, "),
        (DECISION, {"rating": None}, "rating is not one of Sell"),
        (DECISION, {"executive_summary": "  "}, "executive_summary is empty"),
        (PLAN, {"rationale": 3}, "rationale does not fit; wanted: Which arguments"),
        (PROPOSAL, {"action": "Overweight"}, "action is not one of Buy, Hold, Sell"),
        (SENTIMENT, {"score": 11}, "score does not fit; wanted: 0 (as bearish"),
        (SENTIMENT, {"confidence": "sure"}, "confidence is not one of low, medium, high"),
    ],
)
def test_a_problem_is_told_in_our_own_words(
    form: Form, changes: dict[str, object], problem: str
) -> None:
    found = filled(form, **changes)
    assert found.value is None
    assert found.problem.startswith(problem)


def test_every_problem_of_a_reply_is_told() -> None:
    assert fill(PLAN, '{"recommendation": "perhaps"}').problem == (
        "recommendation is not one of Sell, Underweight, Hold, Overweight, Buy; "
        "rationale is missing; strategic_actions is missing"
    )


@pytest.mark.parametrize(
    "around",
    ["{}", "```json\n{}\n```", "Here it is:\n{}\nThat is all.", "```\n{}\n```", "\n\n {} "],
)
def test_a_reply_may_have_words_or_a_fence_around_its_object(around: str) -> None:
    text = around.replace("{}", json.dumps(GOOD["ResearchPlan"]))
    assert fill(PLAN, text).value is not None


@pytest.mark.parametrize(
    "text", ["", "Buy it.", "[1, 2]", "null", '{"rating": "Buy", ', '{"score": NaN}', "{" * 9999]
)
def test_a_text_without_an_object_says_so(text: str) -> None:
    assert fill(SENTIMENT, text).problem == "the reply holds no JSON object"


def test_fields_that_the_form_does_not_have_are_left_out() -> None:
    assert filled(PLAN, mood="fine").value == filled(PLAN).value


@pytest.mark.parametrize("form", FORMS.values(), ids=lambda form: form.name)
def test_the_schema_on_the_wire_is_strict_and_instructs_by_its_descriptions(form: Form) -> None:
    schema = response_schema(form)
    assert set(schema) == {
        *("type", "description", "properties", "required", "additionalProperties")
    }
    assert schema["required"] == list(schema["properties"]) == list(form.model.model_fields)
    assert schema["additionalProperties"] is False
    for name, spec in schema["properties"].items():
        assert len(spec["description"]) > 30, name
        assert set(spec) <= {"type", "enum", "anyOf", "description"}
    optional = [name for name, spec in schema["properties"].items() if "anyOf" in spec]
    wanted = [name for name, spec in form.model.model_fields.items() if not spec.is_required()]
    assert optional == wanted


def test_the_schemas_are_those_of_the_pipeline() -> None:
    assert {name: tuple(form.model.model_fields) for name, form in FORMS.items()} == {
        "SentimentReport": ("overall_sentiment", "score", "confidence", "narrative"),
        "ResearchPlan": ("recommendation", "rationale", "strategic_actions"),
        "TraderProposal": (
            *("action", "reasoning", "entry_price", "stop_loss", "position_sizing"),
        ),
        "PortfolioDecision": (
            *("rating", "executive_summary", "investment_thesis", "price_target", "time_horizon"),
        ),
    }
    assert DECISION.choices == ("Sell", "Underweight", "Hold", "Overweight", "Buy")
    assert PROPOSAL.choices == ("Buy", "Hold", "Sell")


def test_the_json_of_a_decision_does_not_depend_on_how_it_was_written() -> None:
    one = fill(DECISION, json.dumps(GOOD["PortfolioDecision"]))
    other = fill(DECISION, json.dumps(dict(reversed(GOOD["PortfolioDecision"].items())), indent=3))
    assert typed_json(one.value) == typed_json(other.value)
    assert typed_json(one.value).startswith('{"executive_summary":"Trim.","investment_thesis":')
    assert typed_json(None) == "null"


def test_canonical_json_refuses_what_json_has_no_word_for() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


def test_a_small_price_keeps_its_digits() -> None:
    decision = PortfolioDecision(
        rating="Hold",
        executive_summary="a",
        investment_thesis="b",
        price_target=0.00012345678,
    )
    assert "**Price Target**: 0.000123457" in DECISION.render(decision)


def test_a_whole_score_is_rendered_without_a_point() -> None:
    report = SentimentReport(
        overall_sentiment="Neutral", score=5.0, confidence="low", narrative="x"
    )
    assert "**Score**: 5 / 10" in SENTIMENT.render(report)
