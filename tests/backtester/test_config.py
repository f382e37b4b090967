"""Settings from file, environment and flags: strict, in order, under every name that users know."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from backtester.config import RunConfig
from backtester.errors import DataError, UsageError
from backtester.loading import config_from_manifest, load_config, recorded_config, setting
from backtester.spellings import ALIASES, WITHOUT_PLACE, value_of_text
from tradingagents_core.settings import ModelSpec

DATES = {"start": date(2018, 1, 2), "end": date(2018, 6, 29)}


def load(
    *, toml: str = "", folder: Path | None = None, environ: Any = None, **flags: Any
) -> RunConfig:
    path = None
    if folder is not None:
        path = folder / "run.toml"
        path.write_text(toml, encoding="utf-8")
    return load_config(path, environ=environ, flags={"tickers": ("AAPL",), **DATES, **flags})


# ---------------------------------------------------------------------------------- what is strict


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "TRADINGAGENTS_CHECKPOINT_ENABLED",
            "treu",
            "'treu' is no truth value: write true or false",
        ),
        (
            "TRADINGAGENTS_MAX_DEBATE_ROUNDS",
            "1.5",
            "'1.5' is no whole number: write digits alone, such as 3",
        ),
        (
            "BACKTESTER_TEMPERATURE",
            "hot",
            "'hot' is no number: write one such as 0.5",
        ),
        (
            "BACKTESTER_TEMPERATURE",
            "nan",
            "'nan' is no number: write one such as 0.5",
        ),
        (
            "BACKTESTER_HORIZON",
            "0",
            "0 is too small: write 1 or more",
        ),
        (
            "TRADINGAGENTS_DATA_VENDORS",
            "core_stock_apis",
            "'core_stock_apis' has no '=': write KEY=VALUE;KEY=VALUE",
        ),
        (
            "TRADINGAGENTS_DATA_VENDORS",
            "core_stock_apis=files; core_stock_apis = yfinance",
            "'core_stock_apis' is given twice: keep one of them",
        ),
    ],
)
def test_a_variable_that_cannot_be_read_is_an_error_that_names_it(
    variable: str, text: str, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        load(environ={variable: text})
    assert str(refused.value) == f"environment variable {variable}: {message}"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('max_debate_rounds = "2"', "'2' is no whole number: write digits alone, such as 3"),
        ("max_debate_rounds = true", "true is no whole number: write digits alone, such as 3"),
        ("max_debate_rounds = 2.0", "2.0 is no whole number: write digits alone, such as 3"),
        ("analysts_parallel = 1", "1 is no truth value: write true or false"),
        ('analysts_parallel = "yes"', "'yes' is no truth value: write true or false"),
        ('temperature = "0.5"', "'0.5' is no number: write one such as 0.5"),
        ("temperature = true", "true is no number: write one such as 0.5"),
        ("temperature = nan", "nan is no number: write one such as 0.5"),
        ("timeout_s = inf", "inf is no number: write one such as 0.5"),
        ("timeout_s = 0.0", "0.0 is too small: write more than 0"),
        ("output_language = 5", '5 is no text: write it in quotes, such as "English"'),
        ('deep_think_llm = ["a"]', "['a'] is no text: write it in quotes, such as \"English\""),
        ('tickers = "AAPL"', '\'AAPL\' is no list: write one such as ["AAPL", "MSFT"]'),
        ("data_dir = 5", '5 is no path: write it in quotes, such as "reports"'),
        ('memory = "mine"', "'mine' is not known: write 'portfolio', 'ticker' or 'off'"),
        (
            "benchmark_map = 5",
            '5 is no table: write names with values, such as {".T" = "^N225"}',
        ),
        ("start = 20180105", "20180105 is no date: write YYYY-MM-DD, such as 2018-06-29"),
        ('end = "soon"', "'soon' is no date: write YYYY-MM-DD, such as 2018-06-29"),
        ("grid = 5", "5 is no date: write YYYY-MM-DD, such as 2018-06-29"),
        ("grid = []", "the list is empty: write daily, weekly, monthly, 'every 5' or dates"),
        (f"warmup = {10**30}", f"{10**30} is too large: write 100000 or less"),
        (f"generation = {10**30}", f"{10**30} is too large: write 1000000000 or less"),
        (f"max_tokens = {10**30}", f"{10**30} is too large: write 1000000000 or less"),
        (
            'api_key_env = "sk-1234"',
            (
                "this is no variable's name: write the name of the variable that holds the key, "
                "such as OPENAI_API_KEY, and never the key itself"
            ),
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_where_it_stands(
    toml: str, message: str, tmp_path: Path
) -> None:
    named = toml.partition(" ")[0]
    path = tmp_path / "run.toml"
    path.write_text(toml, encoding="utf-8")
    flags = {"tickers": ("AAPL",), **DATES}
    with pytest.raises(UsageError) as refused:
        load_config(path, flags={key: flags[key] for key in flags if key != named})
    assert str(refused.value) == f"config file {path}: {named}: {message}"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("grid = " + "[" * 9_000 + "]" * 9_000, "is nested too deeply: write settings as"),
        ("warmup = " + "9" * 5_000, "is not valid TOML: "),
        ("warmup = ", "is not valid TOML: "),
        ("wramup = 1", "unknown key 'wramup' in config file .*: did you mean 'warmup'?"),
        ("zzzzzz = 1", "unknown key 'zzzzzz' in config file .*: 'backtester settings' lists"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(
    toml: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        load(toml=toml, folder=tmp_path)
    assert str(tmp_path / "run.toml") in str(refused.value)


def test_what_has_no_default_is_asked_for_by_its_flag() -> None:
    with pytest.raises(UsageError) as refused:
        load_config()
    assert str(refused.value) == (
        "tickers, start and end are missing: add --tickers AAPL,MSFT --start 2018-01-01 "
        "--end 2018-12-31, or set them in a file"
    )
    with pytest.raises(UsageError) as refused:
        load_config(flags={"tickers": ("AAPL",), "start": "2018-01-02"})
    assert str(refused.value) == "end is missing: add --end 2018-12-31, or set it in a file"


@pytest.mark.parametrize(
    "grid",
    [
        "2018-01-05",
        " 2018-01-05 ",
        "2018-01-05,",
        date(2018, 1, 5),
        ("2018-01-05",),
        [date(2018, 1, 5)],
    ],
)
def test_a_single_date_is_a_grid_of_one(grid: object) -> None:
    assert load(grid=grid).grid == (date(2018, 1, 5),)


def test_a_word_among_dates_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        load(grid="2018-01-05,nope")
    assert str(refused.value) == ("grid: 'nope' is no date: write YYYY-MM-DD, such as 2018-06-29")


@pytest.mark.parametrize("path", ["x" * 300, "a/" * 3_000, "a\0b", ""])
@pytest.mark.parametrize("name", ["snapshot", "data_dir", "reports_dir"])
def test_what_can_be_no_path_is_refused_before_it_is_opened(name: str, path: str) -> None:
    if name != "snapshot":
        # An empty path is the working folder.
        path = path or "b\0"
    with pytest.raises(UsageError, match=f"^{name}: .* is no path: name a folder") as refused:
        load_config(flags={"tickers": ("AAPL",), **DATES, name: path})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("path", ["~", "~/runs", "~somebody/runs"])
@pytest.mark.parametrize("name", ["snapshot", "data_dir", "reports_dir", "models_file"])
def test_a_home_folder_that_no_shell_expanded_is_refused(name: str, path: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}: .* write the whole path"):
        load_config(flags={"tickers": ("AAPL",), **DATES, name: path})


# A byte that is no UTF-8 comes from the command line as half of a surrogate pair.
@pytest.mark.parametrize("text", ["\udcff", "a\nb", "\x1b[31mGerman", "a\0b", "a\x9bb"])
@pytest.mark.parametrize("name", ["output_language", "debate_language", "quick_model", "name"])
def test_a_text_that_no_prompt_or_file_should_hold_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}: .* no text of one line") as refused:
        load_config(flags={"tickers": ("AAPL",), **DATES, name: text})
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("text", ["true", "TRUE", "yes", "on", "1"])
@pytest.mark.parametrize("variable", ["BACKTESTER_ANALYSTS_PARALLEL"])
def test_a_truth_value_has_a_few_spellings(variable: str, text: str) -> None:
    assert load(environ={variable: text}).analysts_parallel is True


def test_a_whole_number_is_a_number() -> None:
    assert load(temperature=1).temperature == 1.0
    assert load(environ={"BACKTESTER_TEMPERATURE": "1"}).temperature == 1.0


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int | None, " 7 ", 7),
        (float, "1e-3", 0.001),
        (bool, "off", False),
        (tuple[str, ...], "market, news,", ("market", "news")),
        (str | tuple[date, ...], "weekly", "weekly"),
        (str | tuple[date, ...], "2018-01-02,2018-01-03", ("2018-01-02", "2018-01-03")),
        (str | None, "7", "7"),
        (Path, "data", Path("data")),
    ],
)
def test_text_is_read_by_the_type_of_its_field(annotation: Any, text: str, value: object) -> None:
    found = value_of_text(annotation, text)
    assert found == value
    assert type(found) is type(value)


# ---------------------------------------------------------------------------------- who wins


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    toml = "max_debate_rounds = 2\nmax_risk_discuss_rounds = 2\nhorizon = 2\nwarmup = 2\n"
    config = load(
        toml=toml,
        folder=tmp_path,
        environ={
            "TRADINGAGENTS_MAX_DEBATE_ROUNDS": "3",
            "TRADINGAGENTS_MAX_RISK_DISCUSS_ROUNDS": "3",
            "BACKTESTER_MAX_RISK_DISCUSS_ROUNDS": "4",
            "BACKTESTER_HORIZON": "4",
        },
        horizon=5,
    )
    rounds = (config.max_debate_rounds, config.max_risk_discuss_rounds)
    assert (*rounds, config.horizon, config.warmup) == (3, 4, 5, 2)


def test_an_empty_variable_is_not_set() -> None:
    assert load(environ={"TRADINGAGENTS_TEMPERATURE": " "}).temperature is None


def test_other_variables_are_nobodys_business() -> None:
    assert load(environ={"HOME": "/", "OPENAI_API_KEY": "k"}) == load()


# ---------------------------------------------------------------------- names of TradingAgents

SEEDS = [
    ("llm_provider", "openai", "provider", "openai"),
    ("deep_think_llm", "gpt-5.5", "deep_model", "gpt-5.5"),
    ("quick_think_llm", "gpt-5.4-mini", "quick_model", "gpt-5.4-mini"),
    ("backend_url", "http://127.0.0.1:1/v1", "base_url", "http://127.0.0.1:1/v1"),
    ("output_language", "German", "output_language", "German"),
    ("max_debate_rounds", "2", "max_debate_rounds", 2),
    ("max_risk_discuss_rounds", "3", "max_risk_discuss_rounds", 3),
    ("max_recur_limit", "150", "recursion_limit", 150),
    ("news_article_limit", "15", "news_article_limit", 15),
    ("global_news_article_limit", "12", "global_news_article_limit", 12),
    ("global_news_lookback_days", "9", "global_news_lookback_days", 9),
    ("temperature", "0.25", "temperature", 0.25),
    ("checkpoint_enabled", "true", "checkpoint_enabled", True),
    ("memory_log_max_entries", "50", "memory_log_max_entries", 50),
    ("benchmark_ticker", "^GSPC", "benchmark", "^GSPC"),
    ("benchmark_map", ".T=^N225;=SPY", "benchmark_map", {"": "SPY", "T": "^N225"}),
    ("results_dir", "out", "reports_dir", Path("out")),
    ("selected_analysts", "market,news", "analysts", ("market", "news")),
    (
        "data_vendors",
        "core_stock_apis=yfinance,alpha_vantage;news_data=yfinance",
        "data_vendors",
        {"core_stock_apis": ("yfinance", "alpha_vantage"), "news_data": ("yfinance",)},
    ),
    ("tool_vendors", "get_news=alpha_vantage", "tool_vendors", {"get_news": ("alpha_vantage",)}),
]


@pytest.mark.parametrize(("name", "text", "key", "value"), SEEDS, ids=[row[0] for row in SEEDS])
def test_every_key_of_the_seeds_is_a_variable(
    name: str, text: str, key: str, value: object
) -> None:
    assert getattr(load(environ={f"TRADINGAGENTS_{name.upper()}": text}), key) == value
    given, read = setting(f"{name}={text}")
    assert getattr(load(**{given: read}), key) == value


def test_vendor_chains_are_written_in_a_file_as_tables(tmp_path: Path) -> None:
    toml = (
        '[data_vendors]\ncore_stock_apis = "yfinance, alpha_vantage"\n'
        'news_data = ["yfinance"]\n[tool_vendors]\nget_news = "alpha_vantage"\n'
        '[benchmark_map]\n".T" = "^N225"\n'
    )
    config = load(toml=toml, folder=tmp_path)
    assert config.data_vendors["core_stock_apis"] == ("yfinance", "alpha_vantage")
    assert config.data_vendors["news_data"] == ("yfinance",)
    assert config.tool_vendors == {"get_news": ("alpha_vantage",)}
    assert config.benchmark_map == {"T": "^N225"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"data_vendors": {"gossip": "yfinance"}}, "there is no 'gossip': write one of core_stock"),
        ({"data_vendors": {"news_data": ","}}, "news_data has no vendor"),
        ({"tool_vendors": {"get_rumours": "x"}}, "there is no 'get_rumours': write one of get_st"),
    ],
)
def test_a_chain_for_nothing_or_of_nothing_is_refused(flags: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(**flags)


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_an_alias_leads_to_a_setting_and_is_none_itself(name: str) -> None:
    assert ALIASES[name].key in RunConfig.model_fields
    assert name not in RunConfig.model_fields


@pytest.mark.parametrize("name", sorted(WITHOUT_PLACE))
def test_a_key_without_a_place_is_refused_with_what_to_do(name: str) -> None:
    assert name not in RunConfig.model_fields
    with pytest.raises(UsageError, match="has no place here: ") as refused:
        load(environ={f"TRADINGAGENTS_{name.upper()}": "x"})
    assert WITHOUT_PLACE[name] in str(refused.value)


def test_an_unknown_key_is_an_error_that_names_the_nearest() -> None:
    for environ in ({"TRADINGAGENTS_DEEP_THINK_LMM": "m"}, {"BACKTESTER_DEEP_THINK_LMM": "m"}):
        with pytest.raises(UsageError, match="did you mean 'deep_think_llm'"):
            load(environ=environ)


def test_two_names_of_one_setting_must_agree() -> None:
    with pytest.raises(UsageError) as refused:
        load(environ={"BACKTESTER_PROVIDER": "openai", "BACKTESTER_LLM_PROVIDER": "rulebook"})
    assert str(refused.value) == (
        "environment variable BACKTESTER_LLM_PROVIDER and environment variable "
        "BACKTESTER_PROVIDER both set provider, to 'rulebook' and 'openai': keep one of them"
    )
    same = {"BACKTESTER_PROVIDER": "openai", "TRADINGAGENTS_LLM_PROVIDER": "rulebook"}
    assert load(environ=same).provider == "openai"


@pytest.mark.parametrize(
    ("provider", "effort"), [("openai", "high"), ("openai_compatible", None), ("rulebook", None)]
)
def test_an_effort_counts_for_its_own_provider_alone(provider: str, effort: str | None) -> None:
    environ = {
        "TRADINGAGENTS_OPENAI_REASONING_EFFORT": "high",
        "TRADINGAGENTS_GOOGLE_THINKING_LEVEL": "low",
        "TRADINGAGENTS_ANTHROPIC_EFFORT": "medium",
    }
    config = load(environ=environ, provider=provider)
    assert config.reasoning_effort == effort
    assert config.model_spec("deep").reasoning_effort == effort


# -------------------------------------------------------------------------------------- symbols


def test_symbols_are_brought_to_one_spelling_before_anything_else() -> None:
    config = load(tickers=("xauusd+", "BTC/USDT", "600519.SH", "aapl"), benchmark="us500")
    assert config.tickers == ("GC=F", "BTC-USD", "600519.SS", "AAPL")
    assert config.benchmark == "^GSPC"
    assert load(benchmark="None").benchmark == "none"


def test_two_spellings_of_one_symbol_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="a ticker is named twice"):
        load(tickers=("BTCUSD", "BTC-USDT"))


@pytest.mark.parametrize(
    ("symbol", "benchmark"),
    [("7203.T", "^N225"), ("AAPL", "SPY"), ("BTC-USD", "SPY"), ("0700.HK", None)],
)
def test_the_suffix_map_stands_before_the_built_in_table(
    symbol: str, benchmark: str | None
) -> None:
    config = load(benchmark_map={".t": "^N225", "": "SPY"})
    assert config.benchmark_of(symbol) == benchmark
    assert load(benchmark="QQQ", benchmark_map={"": "SPY"}).benchmark_of(symbol) == "QQQ"


# ------------------------------------------------------------------------------------- manifests


def test_a_configuration_comes_back_from_its_manifest(tmp_path: Path) -> None:
    config = load(
        benchmark_map={"T": "^N225"}, data_vendors={"news_data": "yfinance"}, temperature=0.5
    )
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"config": config.model_dump(mode="json")}), encoding="utf-8")
    assert config_from_manifest(manifest, {}) == config
    changed = config_from_manifest(manifest, {"llm_provider": "openai", "horizon": 3})
    assert (changed.provider, changed.horizon) == ("openai", 3)


@pytest.mark.parametrize(
    "text",
    [
        '{"config": []}',
        '{"config": null}',
        '{"config": "text"}',
        '{"config": 5}',
        '"config"',
        "[]",
        "{}",
        "\\xff",
        "[" * 100_000,
        '{"config": ' + '{"a":' * 100_000 + "1" + "}" * 100_001,
        "9" * 5_000,
    ],
    ids=range(11),
)
def test_what_is_no_manifest_is_refused_by_its_path(text: str, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        config_from_manifest(manifest, {})
    assert str(refused.value) == f"{manifest} is no manifest of a run: name a run's manifest.json"


def test_a_folder_is_no_manifest_either(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read .*: name a run's manifest\.json"):
        config_from_manifest(tmp_path, {})


def test_a_setting_of_a_manifest_that_does_not_fit_is_named_with_its_file(tmp_path: Path) -> None:
    recorded = {**load().model_dump(mode="json"), "trials": "many"}
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"config": recorded}), encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        config_from_manifest(manifest, {})
    assert str(refused.value) == (
        f"manifest {manifest}: trials: 'many' is no whole number: write digits alone, such as 3"
    )


def test_a_recorded_configuration_takes_new_fields() -> None:
    config = load(workers=2, temperature=0.5)
    again = recorded_config(config.model_dump(mode="json"), {"mode": "replay", "workers": 4})
    assert again == config.model_copy(update={"mode": "replay", "workers": 4})


@pytest.mark.parametrize("workers", [-3, 0, 100_000, 10**30])
def test_a_field_that_may_not_replace_a_recorded_one_is_a_wrong_command(workers: int) -> None:
    with pytest.raises(UsageError, match=f"^workers: {workers} is too (small|large): write "):
        recorded_config(load().model_dump(mode="json"), {"workers": workers})


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"horizon": "five"}, "horizon: 'five' is no whole number"),
        ({"tickers": None}, "tickers: None is no list"),
        ({"start": [1]}, r"start: \[1\] is no date"),
        ({"horizn": 5}, "unknown config key 'horizn': did you mean 'horizon'?"),
        ({"warmup": 2**70}, "warmup: 1180591620717411303424 is too large"),
    ],
)
def test_a_recorded_configuration_that_does_not_fit_is_damaged(
    damage: dict[str, Any], named: str
) -> None:
    recorded = load().model_dump(mode="json")
    with pytest.raises(DataError, match=named):
        recorded_config({**recorded, **damage}, {"workers": 1})
    with pytest.raises(DataError, match="tickers, start and end are missing"):
        recorded_config({}, {})


def test_what_shapes_prompts_reaches_the_pipeline() -> None:
    config = load(debate_language="German", news_article_limit=3, global_news_lookback_days=4)
    settings = config.pipeline()
    assert (settings.debate_language, settings.news_article_limit) == ("German", 3)
    assert settings.global_news_lookback_days == 4
    assert load().model_spec("quick") == ModelSpec()


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        load().horizon = 3  # type: ignore[misc]


# ------------------------------------------------------------------------------- the two tiers


def test_both_tiers_share_provider_and_address_unless_one_has_its_own() -> None:
    shared = load(provider="openai_compatible", base_url="http://127.0.0.1:1/v1", deep_model="d")
    assert shared.model_spec("quick").base_url == shared.model_spec("deep").base_url
    apart = load(
        provider="openai_compatible",
        base_url="http://127.0.0.1:1/v1",
        endpoint_alias="shed",
        api_key_env="SHED_KEY",
        deep_base_url="http://127.0.0.1:2/v1",
        deep_api_key_env="ATTIC_KEY",
    )
    quick, deep = apart.model_spec("quick"), apart.model_spec("deep")
    assert (quick.base_url, quick.endpoint_alias) == ("http://127.0.0.1:1/v1", "shed")
    assert (deep.base_url, deep.endpoint_alias) == ("http://127.0.0.1:2/v1", None)
    assert apart.key_variable_of("quick") == "SHED_KEY"
    assert apart.key_variable_of("deep") == "ATTIC_KEY"


def test_a_tier_with_another_provider_does_not_take_the_shared_address_or_key() -> None:
    config = load(
        provider="openai_compatible",
        base_url="http://127.0.0.1:1/v1",
        endpoint_alias="shed",
        api_key_env="SHED_KEY",
        deep_provider="deepseek",
        deep_model="deepseek-reasoner",
    )
    deep = config.model_spec("deep")
    assert (deep.provider, deep.base_url, deep.endpoint_alias) == ("deepseek", None, None)
    assert config.key_variable_of("deep") is None
    assert config.model_spec("quick").base_url == "http://127.0.0.1:1/v1"


def test_a_tier_s_alias_stands_for_its_address_in_the_identity() -> None:
    config = load(
        provider="openai_compatible",
        base_url="http://127.0.0.1:1/v1",
        deep_base_url="http://127.0.0.1:2/v1",
        deep_endpoint_alias="attic",
    )
    identity = config.identity_fields()
    assert identity["base_url"] == "http://127.0.0.1:1/v1"
    assert (identity["deep_base_url"], identity["deep_endpoint_alias"]) == (None, "attic")
