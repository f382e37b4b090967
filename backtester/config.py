"""The one configuration object of a run: typed, frozen, built once.

Where its values come from is the business of `backtester.loading`.

Every field is declared with `identity` (it can change an answer, so it is part of the run id) or
`operational` (it cannot); a guard test refuses a field that is neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    field_validator,
    model_validator,
)

from backtester import spellings
from backtester.errors import UsageError
from backtester.own_book import OwnBook
from backtester.spellings import MOST_WORKERS, VENDOR_CATEGORIES, chains, known_chains
from tradingagents_core.errors import SettingsError
from tradingagents_core.settings import ALL_ANALYSTS, ModelSpec, PipelineSettings, ScriptedReply

DecisionTime = Literal["close", "open"]
Estimated = Literal["withhold", "lag"]
Tier = Literal["quick", "deep"]
EntryRule = Literal["next_open", "next_close", "close", "open"]
MemoryScope = Literal["portfolio", "ticker", "off"]

Number = Annotated[float, Strict(), AllowInfNan(False)]
Day = Annotated[date, BeforeValidator(spellings.day)]
Grid = Annotated[str | tuple[date, ...], BeforeValidator(spellings.grid)]
Variable = Annotated[str | None, BeforeValidator(spellings.variable)]
Folder = Annotated[Path, BeforeValidator(spellings.folder)]
Chains = Annotated[Mapping[str, tuple[str, ...]], BeforeValidator(chains)]

SHOWN_BOOK = frozenset(
    {
        *("show_book", "show_book_policy", "show_book_cash"),
        *("show_book_commission_bps", "show_book_slippage_bps"),
    }
)
"""Settings of the simulated book that the portfolio manager may be shown."""

OWN_COMMISSION_BPS: Final = 1.0
OWN_SLIPPAGE_BPS: Final = 5.0
"""What a run's own score charges, and so by default the book that is shown: they are one book."""

# Limits keep each number within what files and hashes can hold.
MOST = 1_000_000_000

ENTRY_RULES: Mapping[DecisionTime, tuple[EntryRule, ...]] = {
    "close": ("next_open", "next_close", "close"),
    "open": ("close", "next_open", "open"),
}


def require_fills(entry_rule: str, *, decision_time: str, haircut: float) -> None:
    """Refuse rules under which nothing can be filled.

    Args:
        entry_rule: Where orders fill.
        decision_time: When decisions are made; `ENTRY_RULES` has what goes with it.
        haircut: Fraction taken off the last close of an instrument that stops trading.

    Raises:
        UsageError: With what to write instead.
    """
    allowed = next((rules for time, rules in ENTRY_RULES.items() if time == decision_time), ())
    if entry_rule not in allowed:
        raise UsageError(
            f"entry rule {entry_rule!r} does not go with decision time {decision_time!r}: "
            f"write one of {', '.join(allowed)}"
        )
    if not 0.0 <= haircut <= 1.0:
        raise UsageError(f"haircut {haircut} is no fraction: write 0 to 1")


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
    estimated: Estimated = identity(
        "withhold", description="Rows published on an estimated date: withhold, or lag to show."
    )
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

    # -- the book that the portfolio manager is shown
    portfolio: OwnBook | None = identity(
        None, description="What you hold, or the JSON file that says so; shown in each decision."
    )
    show_book: StrictBool = identity(
        False, description="Show the simulated book of the decisions so far."
    )
    show_book_policy: Literal["long_only", "long_short", "equal_slots"] = identity(
        "long_only", description="What a rating is worth in that book."
    )
    show_book_cash: Number = identity(
        1_000_000.0, gt=0, le=1e15, description="What that book begins with."
    )
    show_book_commission_bps: Number = identity(
        OWN_COMMISSION_BPS, ge=0, lt=5_000, description="Commission in that book, of the notional."
    )
    show_book_slippage_bps: Number = identity(
        OWN_SLIPPAGE_BPS, ge=0, lt=5_000, description="Slippage in that book, of the price."
    )

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
    api_version: str | None = identity(None, description="Interface version, for azure and google.")
    quick_provider: str | None = identity(None, description="Quick tier's, if another.")
    quick_base_url: str | None = identity(None, description="Quick tier's, if another.")
    quick_endpoint_alias: str | None = identity(None, description="Quick tier's, if another.")
    deep_provider: str | None = identity(None, description="Deep tier's, if another.")
    deep_base_url: str | None = identity(None, description="Deep tier's, if another.")
    deep_endpoint_alias: str | None = identity(None, description="Deep tier's, if another.")
    temperature: Number | None = identity(None, ge=0, le=2, description="Sampling temperature.")
    max_tokens: StrictInt | None = identity(None, ge=1, le=MOST, description="Limit of one reply.")
    reasoning_effort: str | None = identity(
        None, description="How long a reasoning model may think, in its provider's word."
    )
    structured_method: Literal["json_schema", "function_calling", "json_mode", "none"] | None = (
        identity(None, description="How typed replies are asked for.")
    )
    script: tuple[ScriptedReply, ...] = identity(
        (), description="Replies of the provider 'scripted', or the TOML file that holds them."
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
    backend: Literal["threading", "loky", "dask"] = operational(
        "threading", description="Where workers are: threads, loky processes, a dask cluster."
    )
    dask_scheduler: str | None = operational(
        None, description="Address of the cluster's scheduler; left out: one of this machine."
    )
    cell_retries: StrictInt = operational(2, ge=0, le=20, description="Retries of a failed cell.")
    on_failure: Literal["continue", "stop"] = operational(
        "continue", description="What a cell that stays failed does to the run."
    )
    api_key_env: Variable = operational(None, description="Variable that holds the key.")
    quick_api_key_env: Variable = operational(None, description="Quick tier's, if another.")
    deep_api_key_env: Variable = operational(None, description="Deep tier's, if another.")
    timeout_s: Number = operational(
        120.0, gt=0, le=86_400, description="Transport timeout of a call."
    )
    max_retries: StrictInt = operational(5, ge=0, le=20, description="Transport retries of a call.")
    retry_budget_s: Number = operational(
        300.0, ge=0, le=86_400, description="Seconds of a call after which no retry begins."
    )
    models_file: Annotated[Path | None, BeforeValidator(spellings.folder)] = operational(
        None, description="TOML file whose prices, contexts and cutoffs win over the catalogue's."
    )

    # -- caps
    max_cost_usd: Number | None = operational(
        None, ge=0, le=MOST, description="Stops the run: US dollars paid, by all its commands."
    )
    max_calls: StrictInt | None = operational(
        None, ge=0, le=MOST, description="Stops the run: paid calls, of all its commands."
    )
    max_minutes: Number | None = operational(
        None, gt=0, le=MOST, description="Stops the run: minutes of one command."
    )
    cell_max_tokens: StrictInt | None = operational(
        None, ge=1, le=MOST, description="Fails a cell: tokens in and out of one try."
    )
    cell_max_cost_usd: Number | None = operational(
        None, gt=0, le=MOST, description="Fails a cell: US dollars that one try's replies cost."
    )
    cell_max_minutes: Number | None = operational(
        None, gt=0, le=MOST, description="Fails a cell: minutes of one try."
    )

    # -- places and vendors
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
    score_at_end: StrictBool = operational(
        True, description="Score the run when it ends: book, baselines, figures."
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

    @field_validator("*")
    @classmethod
    def _texts_are_of_one_line(cls, value: Any) -> Any:
        if isinstance(value, str):
            spellings.one_line(value)
        return value

    @field_validator("output_language", "debate_language")
    @classmethod
    def _languages_are_named(cls, value: str) -> str:
        if not value.strip():
            raise ValueError('is empty: name a language, such as "English", or leave it out')
        return value

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
        if self.show_book and self.portfolio is not None:
            raise ValueError("portfolio and show_book are two books: keep one of them")
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

    def model_spec(self, tier: Tier) -> ModelSpec:
        """Return what the factory needs to build the model of a tier.

        Address and alias that both tiers share are those of the provider that they share: a tier
        with another provider has its own, or goes to that provider's endpoint.
        """
        own = _TierSettings(
            provider=self.quick_provider if tier == "quick" else self.deep_provider,
            base_url=self.quick_base_url if tier == "quick" else self.deep_base_url,
            alias=self.quick_endpoint_alias if tier == "quick" else self.deep_endpoint_alias,
        )
        shares = own.provider in (None, self.provider)
        moved = own.base_url not in (None, self.base_url)
        return ModelSpec(
            provider=own.provider or self.provider,
            model=self.quick_model if tier == "quick" else self.deep_model,
            base_url=own.base_url or (self.base_url if shares else None),
            endpoint_alias=own.alias or (self.endpoint_alias if shares and not moved else None),
            api_version=self.api_version,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            reasoning_effort=self.reasoning_effort,
            structured_method=self.structured_method,
            script=self.script,
            timeout_s=self.timeout_s,
            max_retries=self.max_retries,
            retry_budget_s=self.retry_budget_s,
        )

    def key_variable_of(self, tier: Tier) -> str | None:
        """Return the variable that the settings name for a tier's key, None for the provider's.

        The variable that both tiers share is for the provider that they share.
        """
        own = self.quick_api_key_env if tier == "quick" else self.deep_api_key_env
        provider = self.quick_provider if tier == "quick" else self.deep_provider
        return own or (self.api_key_env if provider in (None, self.provider) else None)

    def identity_fields(self) -> dict[str, Any]:
        """Return the identity fields as JSON values, sorted by name.

        A configured endpoint alias stands for the address, so a server may move between ports.
        What shapes a simulated book is left out where none is shown.
        """
        wanted = {name for name in type(self).model_fields if is_identity(name)}
        if not self.show_book:
            wanted -= SHOWN_BOOK
        dumped = self.model_dump(mode="json", include=wanted)
        dumped["entry"] = self.entry_rule
        for tier in ("", "quick_", "deep_"):
            if dumped[f"{tier}endpoint_alias"] is not None:
                dumped[f"{tier}base_url"] = None
        return dict(sorted(dumped.items()))


@dataclass(frozen=True, kw_only=True)
class _TierSettings:
    provider: str | None
    base_url: str | None
    alias: str | None


def is_identity(name: str) -> bool:
    """Say whether a field of `RunConfig` is part of the run id.

    Raises:
        KeyError: For a field that is not marked; a guard test keeps that from happening.
    """
    extra = RunConfig.model_fields[name].json_schema_extra
    if not isinstance(extra, dict):
        raise KeyError(f"RunConfig.{name} is marked neither identity nor operational")
    return bool(extra["identity"])
