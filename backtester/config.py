"""The one configuration object of a run: typed, frozen, built once.

Order of precedence, lowest first: defaults, TOML file, environment (`BACKTESTER_*`), flags. The
environment is handed in as a mapping by the command line; nothing here reads it.

Every field is declared with `identity` (it can change an answer, so it is part of the run id) or
`operational` (it cannot); a guard test refuses a field that is neither.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from backtester.errors import UsageError
from tradingagents_core.errors import SettingsError
from tradingagents_core.settings import ALL_ANALYSTS, ModelSpec, PipelineSettings

DecisionTime = Literal["close", "open"]
EntryRule = Literal["next_open", "next_close", "close", "open"]
MemoryScope = Literal["portfolio", "ticker", "off"]

ENV_PREFIX = "BACKTESTER_"
ENTRY_RULES: Mapping[DecisionTime, tuple[EntryRule, ...]] = {
    "close": ("next_open", "next_close", "close"),
    "open": ("close", "next_open", "open"),
}


def identity(default: Any = ..., **kwargs: Any) -> Any:
    """Declare a field that can change an answer and is therefore part of the run id."""
    return Field(default, json_schema_extra={"identity": True}, **kwargs)


def operational(default: Any = ..., **kwargs: Any) -> Any:
    """Declare a field that cannot change an answer."""
    return Field(default, json_schema_extra={"identity": False}, **kwargs)


class RunConfig(BaseModel):
    """Say what one run does. Frozen; build it with keywords or `load_config`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # -- what is decided, and when
    tickers: tuple[str, ...] = identity(description="Instruments, each with its exchange suffix.")
    start: date = identity(description="First date of the grid.")
    end: date = identity(description="Last date of the grid.")
    grid: str | tuple[date, ...] = identity(
        "weekly", description="daily, weekly, monthly, 'every N', or a list of dates."
    )
    warmup: int = identity(0, ge=0, description="First sessions that decide but are not scored.")
    decision_time: DecisionTime = identity("close", description="Cutoff: close or open.")
    trials: int = identity(1, ge=1, le=1000, description="Repeats of each cell, each a lane.")
    trials_share_memory: Literal["own", "first"] = identity(
        "own", description="Whose lessons trial k reads: its own, or trial 0's."
    )

    # -- how it is scored
    horizon: int = identity(5, ge=1, le=1000, description="Sessions from decision to exit.")
    entry: EntryRule | None = identity(None, description="Fill rule; default by decision_time.")
    benchmark: str | None = identity(None, description="Explicit benchmark; default by suffix.")
    delisting_haircut: float = identity(0.0, ge=0, le=1, description="Taken off a last close.")

    # -- memory
    memory: MemoryScope = identity("portfolio", description="Whose lessons a cell may read.")
    own_lessons: int = identity(5, ge=0, le=100, description="Lessons of the ticker, in full.")
    other_lessons: int = identity(3, ge=0, le=100, description="Lessons of other tickers.")

    # -- the pipeline
    analysts: tuple[str, ...] = identity(ALL_ANALYSTS, description="Analysts, in order.")
    max_debate_rounds: int = identity(1, ge=1, le=20, description="Bull and bear rounds.")
    max_risk_discuss_rounds: int = identity(1, ge=1, le=20, description="Risk rounds.")
    max_tool_turns: int = identity(6, ge=0, le=50, description="Tool turns an analyst.")
    max_repairs: int = identity(1, ge=0, le=10, description="Repairs of a structured reply.")
    recursion_limit: int = identity(100, ge=10, le=10_000, description="Graph steps a cell.")
    analysts_parallel: bool = identity(False, description="Analysts as parallel branches.")
    price_lookback: int = identity(30, ge=1, le=2_000, description="Sessions of prices asked for.")
    news_lookback_days: int = identity(7, ge=1, le=365, description="Days of news asked for.")
    output_language: str = identity("English", description="Language of reports and decisions.")
    lesson_roles: tuple[str, ...] = identity(
        ("Portfolio Manager",), description="Nodes that are shown lessons."
    )

    # -- models
    provider: str = identity("rulebook", description="Row of the provider table.")
    quick_model: str = identity("rulebook-1", description="Model of the quick tier.")
    deep_model: str = identity("rulebook-1", description="Model of the deep tier.")
    base_url: str | None = identity(None, description="Endpoint; default the provider's own.")
    endpoint_alias: str | None = identity(None, description="Endpoint's name in cache keys.")
    temperature: float | None = identity(None, ge=0, le=2, description="Sampling temperature.")
    max_tokens: int | None = identity(None, ge=1, description="Limit of one reply.")
    structured_method: Literal["json_schema", "function_calling", "json_mode", "none"] | None = (
        identity(None, description="How typed replies are asked for.")
    )
    accept_truncated: bool = identity(
        False, description="Take free text that was cut by length as an answer."
    )
    generation: int = identity(0, ge=0, description="Raised by refresh; part of every key.")

    # -- operational: cannot change an answer
    snapshot: str = operational("us-2013-2018", description="Snapshot name or folder.")
    name: str | None = operational(None, description="Readable front of the run id.")
    mode: Literal["record", "replay", "refresh", "off"] = operational(
        "record", description="What a cache miss does."
    )
    workers: int = operational(1, ge=1, le=256, description="Cells decided at once.")
    backend: Literal["threading", "loky"] = operational(
        "threading", description="joblib backend of the workers."
    )
    cell_retries: int = operational(2, ge=0, le=20, description="Retries of a failed cell.")
    on_failure: Literal["continue", "stop"] = operational(
        "continue", description="What a cell that stays failed does to the run."
    )
    api_key_env: str | None = operational(None, description="Variable that holds the key.")
    timeout_s: float = operational(120.0, gt=0, description="Transport timeout of a call.")
    max_retries: int = operational(2, ge=0, le=20, description="Transport retries of a call.")
    data_dir: Path = operational(Path("data"), description="Snapshots and cache.")
    reports_dir: Path = operational(Path("reports"), description="Runs and results database.")

    @field_validator("tickers")
    @classmethod
    def _tickers_are_symbols(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("name at least one ticker")
        for ticker in value:
            check_ticker(ticker)
        if len(set(value)) != len(value):
            raise ValueError("a ticker is named twice")
        return value

    @model_validator(mode="after")
    def _rules_fit(self) -> RunConfig:
        if self.end < self.start:
            raise ValueError(f"end {self.end} is before start {self.start}: swap them")
        if self.entry is not None and self.entry not in ENTRY_RULES[self.decision_time]:
            allowed = ", ".join(ENTRY_RULES[self.decision_time])
            raise ValueError(
                f"entry {self.entry!r} does not go with decision_time "
                f"{self.decision_time!r}: write one of {allowed}"
            )
        if self.entry_rule == "next_close" and self.horizon < 2:
            raise ValueError("entry 'next_close' needs horizon 2 or more")
        self.pipeline()
        return self

    @property
    def entry_rule(self) -> EntryRule:
        """Return the fill rule in force: the one asked for, else the default (section 8)."""
        return self.entry if self.entry is not None else ENTRY_RULES[self.decision_time][0]

    def pipeline(self) -> PipelineSettings:
        """Return the pipeline's part of the settings."""
        try:
            return PipelineSettings(
                analysts=self.analysts,
                max_debate_rounds=self.max_debate_rounds,
                max_risk_discuss_rounds=self.max_risk_discuss_rounds,
                max_tool_turns=self.max_tool_turns,
                max_repairs=self.max_repairs,
                recursion_limit=self.recursion_limit,
                analysts_parallel=self.analysts_parallel,
                price_lookback=self.price_lookback,
                news_lookback_days=self.news_lookback_days,
                output_language=self.output_language,
                lesson_roles=self.lesson_roles,
            )
        except SettingsError as error:
            raise ValueError(str(error)) from error

    def model_spec(self, tier: Literal["quick", "deep"]) -> ModelSpec:
        """Return what the factory needs to build the model of a tier."""
        return ModelSpec(
            provider=self.provider,
            model=self.quick_model if tier == "quick" else self.deep_model,
            base_url=self.base_url,
            endpoint_alias=self.endpoint_alias,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            structured_method=self.structured_method,
            timeout_s=self.timeout_s,
            max_retries=self.max_retries,
        )

    def identity_fields(self) -> dict[str, Any]:
        """Return the identity fields as JSON values, sorted by name.

        A configured endpoint alias stands for the address, so a server may move between ports.
        """
        wanted = {name for name in type(self).model_fields if is_identity(name)}
        dumped = self.model_dump(mode="json", include=wanted)
        dumped["entry"] = self.entry_rule
        if self.endpoint_alias is not None:
            dumped["base_url"] = None
        return dict(sorted(dumped.items()))


def is_identity(name: str) -> bool:
    """Say whether a field of `RunConfig` is part of the run id.

    Raises:
        KeyError: For a field that is not marked; a guard test keeps that from happening.
    """
    extra = RunConfig.model_fields[name].json_schema_extra
    if not isinstance(extra, dict):
        raise KeyError(f"RunConfig.{name} is marked neither identity nor operational")
    return bool(extra["identity"])


def check_ticker(ticker: str) -> None:
    """Refuse a ticker that cannot be one, before it reaches a path, a query or a prompt.

    Raises:
        ValueError: With what a ticker looks like.
    """
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-^=")
    if not ticker or len(ticker) > 20 or not set(ticker) <= allowed or ".." in ticker:
        raise ValueError(
            f"{ticker!r} is no ticker: write letters, digits and . - ^ = (at most 20), "
            "such as AAPL, 7203.T or ^GSPC"
        )


def load_config(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Build the configuration of a run.

    Args:
        path: TOML file with top-level keys named as `RunConfig`'s fields, or None.
        environ: Environment to read ``BACKTESTER_*`` from, or None for none.
        flags: Values from the command line; None values are skipped.

    Raises:
        UsageError: For a file that cannot be read, an unknown key (with the nearest name) or a
            value that does not fit.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values.update(_read_toml(path))
    for variable, text in sorted((environ or {}).items()):
        if variable.startswith(ENV_PREFIX):
            key = variable.removeprefix(ENV_PREFIX).lower()
            _require_known(key, f"environment variable {variable}")
            values[key] = _from_text(key, text)
    values.update({key: value for key, value in (flags or {}).items() if value is not None})
    try:
        return RunConfig(**values)
    except ValidationError as error:
        raise UsageError(_first_problem(error)) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError as error:
        raise UsageError(f"config file {path} does not exist: check the path") from error
    except OSError as error:
        raise UsageError(f"config file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"config file {path} is not valid TOML: {error}") from error
    for key in values:
        _require_known(key, f"config file {path}")
    return values


def _require_known(key: str, where: str) -> None:
    if key in RunConfig.model_fields:
        return
    near = difflib.get_close_matches(key, RunConfig.model_fields, n=1, cutoff=0.0)
    raise UsageError(f"unknown key {key!r} in {where}: did you mean {near[0]!r}?")


def _from_text(key: str, text: str) -> Any:
    annotation = str(RunConfig.model_fields[key].annotation)
    if "tuple" in annotation and not (key == "grid" and "," not in text):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, RunConfig.model_fields, n=1, cutoff=0.0)
        return f"unknown config key {key!r}: did you mean {near[0]!r}?"
    return f"{key}: {message}" if key else message


def setting(text: str) -> tuple[str, Any]:
    """Read a ``KEY=VALUE`` of the command line.

    Raises:
        UsageError: No equals sign, or an unknown key (with the nearest name).
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text!r} has no '=': write --set KEY=VALUE")
    _require_known(key, "--set")
    return key, _from_text(key, value)


def config_from_manifest(path: Path, flags: Mapping[str, Any]) -> RunConfig:
    """Build the configuration of a recorded run again, from its ``manifest.json``.

    Args:
        path: The manifest.
        flags: Values that win over it; None values are skipped.

    Raises:
        UsageError: The file is missing, no manifest, or a flag does not fit.
    """
    try:
        recorded = json.loads(path.read_bytes())["config"]
    except FileNotFoundError as error:
        raise UsageError(f"manifest {path} does not exist: check the path") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no manifest of a run: name a run's manifest.json") from error
    changes = {key: value for key, value in flags.items() if value is not None}
    try:
        return RunConfig(**{**recorded, **changes})
    except ValidationError as error:
        raise UsageError(_first_problem(error)) from error
