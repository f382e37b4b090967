"""Every field of a run's configuration says whether it can change an answer."""

from __future__ import annotations

import dataclasses

from backtester.config import SHOWN_BOOK, RunConfig, is_identity
from tradingagents_core.settings import ModelSpec, PipelineSettings

# Fields of the core's settings under their names in `RunConfig`, where those differ.
RENAMED = {"model": ("quick_model", "deep_model")}
TRANSPORT_ONLY = {"timeout_s", "max_retries", "retry_budget_s"}


def test_every_field_is_marked_identity_or_operational() -> None:
    unmarked = [
        name
        for name, field in RunConfig.model_fields.items()
        if not isinstance(field.json_schema_extra, dict)
        or not isinstance(field.json_schema_extra.get("identity"), bool)
    ]
    assert unmarked == []


def test_every_field_says_what_it_is() -> None:
    silent = [name for name, field in RunConfig.model_fields.items() if not field.description]
    assert silent == []


def test_the_identity_holds_just_the_fields_marked_so() -> None:
    config = RunConfig(tickers=("AAPL",), start="2018-01-02", end="2018-06-29", show_book=True)
    marked = {name for name in RunConfig.model_fields if is_identity(name)}
    assert set(config.identity_fields()) == marked
    # A book that nobody is shown changes no answer, whatever it would begin with.
    without = config.model_copy(update={"show_book": False, "show_book_cash": 5.0})
    assert set(without.identity_fields()) == marked - SHOWN_BOOK


def test_whatever_shapes_the_pipeline_is_part_of_the_identity() -> None:
    shaping = [field.name for field in dataclasses.fields(PipelineSettings)]
    for field in dataclasses.fields(ModelSpec):
        if field.name not in TRANSPORT_ONLY:
            shaping.extend(RENAMED.get(field.name, (field.name,)))
    assert [name for name in shaping if not is_identity(name)] == []


def test_what_only_the_transport_sees_is_not() -> None:
    assert [name for name in sorted(TRANSPORT_ONLY) if is_identity(name)] == []
