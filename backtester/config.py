"""The one configuration object of a run: typed, frozen, built once.

Order of precedence, lowest first: defaults, TOML file, environment (`TRADINGAGENTS_*`, then
`BACKTESTER_*`), flags. The environment is handed in as a mapping by the command line; nothing here
reads it. Settings may be given under the names of `spellings.ALIASES`, and none is coerced from
another type: a number in quotes is no number.

Every field is declared with `identity` (it can change an answer, so it is part of the run id) or
`operational` (it cannot); a guard test refuses a field that is neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from backtester import spellings
from backtester.errors import DataError, UsageError
from backtester.spellings import (
    ALIASES,
    MOST_WORKERS,
    VENDOR_CATEGORIES,
    WITHOUT_PLACE,
    Given,
    chains,
    known_chains,
    merge,
    shown,
    value_of_text,
)
from tradingagents_core.errors import SettingsError
from tradingagents_core.settings import ALL_ANALYSTS, ModelSpec, PipelineSettings

DecisionTime = Literal["close", "open"]
EntryRule = Literal["next_open", "next_close", "close", "open"]
MemoryScope = Literal["portfolio", "ticker", "off"]

Number = Annotated[float, Strict(), AllowInfNan(False)]
Day = Annotated[date, BeforeValidator(spellings.day)]
Grid = Annotated[str | tuple[date, ...], BeforeValidator(spellings.grid)]
Folder = Annotated[Path, BeforeValidator(spellings.folder)]
Chains = Annotated[Mapping[str, tuple[str, ...]], BeforeValidator(chains)]

# Limits keep each number within what files and hashes can hold.
MOST = 1_000_000_000

ENV_PREFIX = "BACKTESTER_"
# The later one wins.
ENV_PREFIXES = ("TRADINGAGENTS_", ENV_PREFIX)
# Variables of the test suite: whoever has them set runs the commands as well.
NO_SETTINGS = ("BACKTESTER_EXTRA_DATA", "BACKTESTER_TEST_TZ")
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
    start: Day = identity(description="First date of the grid.")
    end: Day = identity(description="Last date of the grid.")
    grid: Grid = identity(
        "weekly", description="daily, weekly, monthly, 'every N', or a list of dates."
    )
    warmup: StrictInt = identity(
        0, ge=0, le=100_000, description="First sessions that decide but are not scored."
    )
    decision_time: DecisionTime = identity("close", description="Cutoff: close or open.")
    trials: StrictInt = identity(1, ge=1, le=1000, description="Repeats of each cell, each a lane.")
    trials_share_memory: Literal["own", "first"] = identity(
        "own", description="Whose lessons trial k reads: its own, or trial 0's."
    )

    # -- how it is scored
    horizon: StrictInt = identity(5, ge=1, le=1000, description="Sessions from decision to exit.")
    entry: EntryRule | None = identity(None, description="Fill rule; default by decision_time.")
    benchmark: str | None = identity(
        None, description="Explicit benchmark, or none; default by market."
    )
    benchmark_map: Mapping[str, str] = identity(
        {}, description="Exchange suffix -> benchmark, before the built-in table."
    )
    delisting_haircut: Number = identity(0.0, ge=0, le=1, description="Taken off a last close.")

    # -- memory
    memory: MemoryScope = identity("portfolio", description="Whose lessons a cell may read.")
    own_lessons: StrictInt = identity(
        5, ge=0, le=100, description="Lessons of the ticker, in full."
    )
    other_lessons: StrictInt = identity(3, ge=0, le=100, description="Lessons of other tickers.")

    # -- the pipeline
    analysts: tuple[str, ...] = identity(ALL_ANALYSTS, description="Analysts, in order.")
    max_debate_rounds: StrictInt = identity(1, ge=1, le=20, description="Bull and bear rounds.")
    max_risk_discuss_rounds: StrictInt = identity(1, ge=1, le=20, description="Risk rounds.")
    max_tool_turns: StrictInt = identity(6, ge=0, le=50, description="Tool turns an analyst.")
    max_repairs: StrictInt = identity(1, ge=0, le=10, description="Repairs of a structured reply.")
    recursion_limit: StrictInt = identity(100, ge=10, le=10_000, description="Graph steps a cell.")
    analysts_parallel: StrictBool = identity(False, description="Analysts as parallel branches.")
    price_lookback: StrictInt = identity(
        30, ge=1, le=2_000, description="Sessions of prices asked for."
    )
    news_lookback_days: StrictInt = identity(7, ge=1, le=365, description="Days of news asked for.")
    news_article_limit: StrictInt = identity(
        20, ge=1, le=500, description="News items of one answer, the newest."
    )
    global_news_lookback_days: StrictInt = identity(
        7, ge=1, le=365, description="Days of global news asked for."
    )
    global_news_article_limit: StrictInt = identity(
        20, ge=1, le=500, description="Global news items of one answer."
    )
    output_language: str = identity("English", description="Language of reports and decisions.")
    debate_language: str = identity("English", description="Language of the debates.")
    lesson_roles: tuple[str, ...] = identity(
        ("Portfolio Manager",), description="Nodes that are shown lessons."
    )

    # -- models
    provider: str = identity("rulebook", description="Row of the provider table.")
    quick_model: str = identity("rulebook-1", description="Model of the quick tier.")
    deep_model: str = identity("rulebook-1", description="Model of the deep tier.")
    base_url: str | None = identity(None, description="Endpoint; default the provider's own.")
    endpoint_alias: str | None = identity(None, description="Endpoint's name in cache keys.")
    temperature: Number | None = identity(None, ge=0, le=2, description="Sampling temperature.")
    max_tokens: StrictInt | None = identity(None, ge=1, le=MOST, description="Limit of one reply.")
    reasoning_effort: str | None = identity(
        None, description="How long a reasoning model may think, in its provider's word."
    )
    structured_method: Literal["json_schema", "function_calling", "json_mode", "none"] | None = (
        identity(None, description="How typed replies are asked for.")
    )
    accept_truncated: StrictBool = identity(
        False, description="Take free text that was cut by length as an answer."
    )
    generation: StrictInt = identity(
        0, ge=0, le=MOST, description="Raised by refresh; part of every key."
    )

    # -- operational: cannot change an answer
    snapshot: Annotated[str, BeforeValidator(spellings.folder)] = operational(
        "us-2013-2018", description="Snapshot name or folder."
    )
    name: str | None = operational(None, description="Readable front of the run id.")
    mode: Literal["record", "replay", "refresh", "off"] = operational(
        "record", description="What a cache miss does."
    )
    workers: StrictInt = operational(1, ge=1, le=MOST_WORKERS, description="Cells decided at once.")
    backend: Literal["threading", "loky"] = operational(
        "threading", description="joblib backend of the workers."
    )
    cell_retries: StrictInt = operational(2, ge=0, le=20, description="Retries of a failed cell.")
    on_failure: Literal["continue", "stop"] = operational(
        "continue", description="What a cell that stays failed does to the run."
    )
    api_key_env: Annotated[str | None, BeforeValidator(spellings.variable)] = operational(
        None, description="Variable that holds the key."
    )
    timeout_s: Number = operational(
        120.0, gt=0, le=86_400, description="Transport timeout of a call."
    )
    max_retries: StrictInt = operational(2, ge=0, le=20, description="Transport retries of a call.")
    data_vendors: Chains = operational(
        {}, description="Kind of data -> vendors in order, for freezing."
    )
    tool_vendors: Chains = operational(
        {}, description="Tool -> vendors in order, before data_vendors."
    )
    checkpoint_enabled: StrictBool = operational(
        False, description="Let analyze go on with a decision that was stopped."
    )
    memory_log_max_entries: StrictInt | None = operational(
        None, ge=1, le=MOST, description="Entries that the exported decision log keeps."
    )
    save_states: bool = operational(
        False, description="Write each cell's full state as JSON under the run's states/."
    )
    data_dir: Folder = operational(Path("data"), description="Snapshots and cache.")
    reports_dir: Folder = operational(Path("reports"), description="Runs and results database.")

    @field_validator("tickers")
    @classmethod
    def _tickers_are_symbols(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("name at least one ticker")
        symbols = tuple(map(spellings.symbol, value))
        if len(set(symbols)) != len(symbols):
            raise ValueError("a ticker is named twice")
        return symbols

    @field_validator("benchmark")
    @classmethod
    def _benchmark_is_a_symbol(cls, value: str | None) -> str | None:
        return None if value is None else spellings.benchmark(value)

    @field_validator("benchmark_map")
    @classmethod
    def _suffixes_are_bare(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        return spellings.suffixes(value)

    @field_validator("data_vendors")
    @classmethod
    def _categories_exist(cls, value: Mapping[str, tuple[str, ...]]) -> Mapping[str, Any]:
        return known_chains(value, VENDOR_CATEGORIES)

    @field_validator("tool_vendors")
    @classmethod
    def _tools_exist(cls, value: Mapping[str, tuple[str, ...]]) -> Mapping[str, Any]:
        # The tools bring the indicator library along, which a run without chains has no use for.
        if not value:
            return value
        from tradingagents_core.tools import TOOLS

        return known_chains(value, TOOLS)

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

    def benchmark_of(self, symbol: str) -> str | None:
        """Return the benchmark that the settings name for an instrument, or None for the default.

        The explicit one wins over that of the suffix; a symbol without one has the suffix ``""``.
        """
        if self.benchmark is not None:
            return self.benchmark
        return self.benchmark_map.get(symbol.rpartition(".")[2] if "." in symbol else "")

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
                news_article_limit=self.news_article_limit,
                global_news_lookback_days=self.global_news_lookback_days,
                global_news_article_limit=self.global_news_article_limit,
                output_language=self.output_language,
                debate_language=self.debate_language,
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
            reasoning_effort=self.reasoning_effort,
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


def load_config(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Build the configuration of a run.

    Args:
        path: TOML file with top-level keys named as `RunConfig`'s fields, or None.
        environ: Environment to read ``TRADINGAGENTS_*`` and ``BACKTESTER_*`` from, or None for
            none. An empty variable counts as not set.
        flags: Values from the command line, or of a configuration in Python; None values are
            skipped.

    Raises:
        UsageError: For a file that cannot be read, an unknown key (with the nearest name), two
            names of one setting that differ, or a value that does not fit. It names the file or
            variable.
    """
    layers = [_from_toml(path)]
    layers += [_from_environment(environ or {}, prefix) for prefix in ENV_PREFIXES]
    layers.append(_from_flags(flags or {}))
    return _built(_merged(layers))


def _built(given: Mapping[str, Given]) -> RunConfig:
    try:
        return RunConfig(**{key: item.value for key, item in given.items()})
    except ValidationError as error:
        raise UsageError(_first_problem(error, given)) from error


def _merged(layers: Iterable[Iterable[Given]]) -> dict[str, Given]:
    return merge(layers, provider=RunConfig.model_fields["provider"].default)


def _from_toml(path: Path | None) -> Iterator[Given]:
    for name, value in (spellings.read_toml(path) if path is not None else {}).items():
        where = f"config file {path}: {name}"
        _require_known(name, f"config file {path}")
        yield Given(name=name, where=where, value=value)


def _from_environment(environ: Mapping[str, str], prefix: str) -> Iterator[Given]:
    for variable, text in sorted(environ.items()):
        if variable.startswith(prefix) and variable not in NO_SETTINGS and text.strip():
            where = f"environment variable {variable}"
            name = variable.removeprefix(prefix).lower()
            _require_known(name, where)
            yield Given(name=name, where=where, value=_read(name, text, where))


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Given]:
    for name, value in flags.items():
        if value is not None:
            _require_known(name, "the settings")
            yield Given(name=name, where=name, value=value)


def _read(name: str, text: str, where: str) -> Any:
    key = ALIASES[name].key if name in ALIASES else name
    try:
        return value_of_text(RunConfig.model_fields[key].annotation, text)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def _require_known(key: str, where: str) -> None:
    if key in RunConfig.model_fields or key in ALIASES:
        return
    if key in WITHOUT_PLACE:
        raise UsageError(f"{key!r} in {where} has no place here: {WITHOUT_PLACE[key]}")
    near = spellings.nearest(key, (*RunConfig.model_fields, *ALIASES))
    raise UsageError(f"unknown key {shown(key)} in {where}: {near}")


def _first_problem(error: ValidationError, given: Mapping[str, Given]) -> str:
    problems = error.errors(include_url=False)
    lacking = [str(found["loc"][0]) for found in problems if found["type"] == "missing"]
    problem = problems[0]
    if problem["type"] == "missing":
        return spellings.missing(lacking)
    key, *inner = (str(part) for part in problem["loc"] or ("",))
    if problem["type"] == "extra_forbidden":
        near = spellings.nearest(key, RunConfig.model_fields)
        return f"unknown config key {shown(key)}: {near}"
    said = spellings.plain(
        problem["type"], problem["msg"], problem["input"], problem.get("ctx", {})
    )
    where = given[key].where if key in given else key
    return f"{'.'.join((where, *inner))}: {said}" if where else said


def setting(text: str) -> tuple[str, Any]:
    """Read a ``KEY=VALUE`` of the command line.

    Returns:
        The name as it was given, and the value by the type of its field.

    Raises:
        UsageError: No equals sign, an unknown key (with the nearest name), or a value that is
            not of the field's type.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {shown(text)} has no '=': write --set KEY=VALUE")
    _require_known(name, "--set")
    return name, _read(name, value, f"--set {name}")


def config_from_manifest(path: Path, flags: Mapping[str, Any]) -> RunConfig:
    """Build the configuration of a recorded run again, from its ``manifest.json``.

    Args:
        path: The manifest.
        flags: Values that win over it; None values are skipped.

    Raises:
        UsageError: The file is missing, no manifest, or a flag does not fit.
    """
    try:
        recorded = dict[str, Any](json.loads(path.read_bytes())["config"].items())
    except FileNotFoundError as error:
        raise UsageError(f"manifest {path} does not exist: check the path") from error
    except OSError as error:
        raise UsageError(
            f"manifest {path} cannot be read ({error.strerror}): name a run's manifest.json"
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no manifest of a run: name a run's manifest.json") from error
    known = (
        Given(name=name, where=f"manifest {path}: {name}", value=value)
        for name, value in recorded.items()
    )
    return _built(_merged([known, _from_flags(flags)]))


def recorded_config(recorded: Mapping[str, Any], overrides: Mapping[str, Any]) -> RunConfig:
    """Build the configuration of a recorded run again, with some fields replaced.

    Args:
        recorded: The configuration as the run's manifest holds it.
        overrides: Fields to replace; each value wins over the recorded one.

    Raises:
        DataError: What was recorded does not fit.
        UsageError: A replacement does not fit.
    """
    try:
        RunConfig(**recorded)
    except ValidationError as error:
        raise DataError(
            f"the configuration in the run's manifest does not fit ({_first_problem(error, {})}): "
            "bring the manifest back, or run the same command again"
        ) from error
    return _built(_merged([_from_flags(recorded), _from_flags(overrides)]))
