"""Models are built in one place, from a table; what is wrong is said before anything starts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.capabilities import (
    Transport,
    check_knobs,
    structured_method,
    structured_method_of,
)
from tradingagents_core.llm.doubles import ScriptedChatModel
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.providers import PROVIDERS
from tradingagents_core.settings import ModelSpec

URL = "http://127.0.0.1:9/v1"


def test_the_rulebook_needs_no_client_library() -> None:
    code = (
        "import sys\n"
        "from tradingagents_core.llm.factory import create_model\n"
        "from tradingagents_core.settings import ModelSpec\n"
        "assert 'langchain_core' not in sys.modules\n"
        "create_model(ModelSpec(), api_key=None)\n"
        "assert not {'openai', 'langchain_openai'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_provider_names_the_known_ones() -> None:
    with pytest.raises(
        SettingsError, match="rulebook, scripted, openai, openai_compatible, ollama"
    ):
        create_model(ModelSpec(provider="opanai"), api_key=None)


def test_a_missing_key_names_its_variable() -> None:
    spec = ModelSpec(provider="openai", model="gpt-4o-mini")
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        create_model(spec, api_key=None)


def test_a_replay_needs_no_key() -> None:
    spec = ModelSpec(provider="openai", model="gpt-4o-mini")
    assert create_model(spec, api_key=None, transport="refuse").transport == "refuse"


def test_a_compatible_endpoint_needs_an_address() -> None:
    with pytest.raises(SettingsError, match="set base_url"):
        create_model(ModelSpec(provider="openai_compatible", model="m"), api_key=None)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host/v1", "http://host:x/v1", "http:///"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="is no address"):
        create_model(ModelSpec(provider="openai_compatible", model="m", base_url=url), api_key=None)


@pytest.mark.parametrize("url", ["http://me:sk-TEST@host/v1", "http://host/v1?key=sk-TEST"])
def test_an_address_with_a_credential_is_refused_without_repeating_it(url: str) -> None:
    spec = ModelSpec(provider="openai_compatible", model="m", base_url=url)
    with pytest.raises(SettingsError, match="OPENAI_COMPATIBLE_API_KEY") as refused:
        create_model(spec, api_key=None)
    assert "sk-TEST" not in str(refused.value)


def test_the_rulebook_has_no_address() -> None:
    with pytest.raises(SettingsError, match="leave base_url out"):
        create_model(ModelSpec(base_url=URL), api_key=None)


def test_the_environment_cannot_move_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
    monkeypatch.setenv("OPENAI_API_BASE", "http://elsewhere/v1")
    monkeypatch.setenv("LC_OUTPUT_VERSION", "v1")
    model = create_model(ModelSpec(provider="openai", model="gpt-4o-mini"), api_key="k")
    assert str(model.root_client.base_url) == "https://api.openai.com/v1/"
    assert model.endpoint == "openai"
    assert model.output_version == "v0"


@pytest.mark.parametrize("name", ["gpt-6-astra", "codex-7b-instruct", "gpt-5-pro", "o3"])
def test_a_foreign_endpoint_never_gets_the_responses_api(name: str) -> None:
    spec = ModelSpec(provider="openai_compatible", model=name, base_url=URL)
    body = create_model(spec, api_key=None)._get_request_payload("hi", tools=[])
    assert "messages" in body
    assert "input" not in body


def test_openais_own_answers_are_not_kept_there() -> None:
    model = create_model(ModelSpec(provider="openai", model="gpt-4o-mini"), api_key="k")
    assert model._get_request_payload("hi")["store"] is False


def test_the_limit_has_the_name_that_the_endpoint_knows() -> None:
    own = create_model(ModelSpec(provider="openai", model="o3", max_tokens=9), api_key="k")
    new = create_model(ModelSpec(provider="groq", model="m", max_tokens=9), api_key="k")
    foreign = create_model(
        ModelSpec(provider="openai_compatible", model="m", base_url=URL, max_tokens=9), api_key=None
    )
    assert own._get_request_payload("hi")["max_output_tokens"] == 9
    assert new._get_request_payload("hi")["max_completion_tokens"] == 9
    body = foreign._get_request_payload("hi")
    assert body["max_tokens"] == 9
    assert "max_completion_tokens" not in body


@pytest.mark.parametrize("provider", ["openai", "openai_compatible"])
def test_a_reasoning_effort_is_sent_in_the_provider_s_own_word(provider: str) -> None:
    url = URL if provider == "openai_compatible" else None
    spec = ModelSpec(provider=provider, model="m-1", base_url=url, reasoning_effort="high")
    body = create_model(spec, api_key="k")._get_request_payload("hi")
    said = body["reasoning"] if provider == "openai" else {"effort": body["reasoning_effort"]}
    assert said == {"effort": "high"}
    unset = create_model(replace(spec, reasoning_effort=None), api_key="k")
    assert not {"reasoning", "reasoning_effort"} & set(unset._get_request_payload("hi"))


def test_an_effort_that_a_model_does_not_know_is_refused() -> None:
    spec = ModelSpec(provider="openai", model="o3", reasoning_effort="hihg")
    with pytest.raises(
        SettingsError, match="'hihg' is no word of 'o3' of provider 'openai': write"
    ):
        create_model(spec, api_key="k")


def test_knobs_reach_only_the_models_that_take_them() -> None:
    knobs = {"temperature": 0.0, "reasoning_effort": "high"}
    plain = create_model(ModelSpec(provider="openai", model="gpt-4o", **knobs), api_key="k")
    thinking = create_model(ModelSpec(provider="openai", model="o3", **knobs), api_key="k")
    assert plain._get_request_payload("hi")["temperature"] == 0.0
    assert "reasoning" not in plain._get_request_payload("hi")
    assert "temperature" not in thinking._get_request_payload("hi")
    assert thinking._get_request_payload("hi")["reasoning"] == {"effort": "high"}


@pytest.mark.parametrize(
    ("knob", "models", "said"),
    [
        ({"temperature": 0.0}, ("o3", "gpt-5.4"), "takes no temperature: leave temperature out"),
        ({"reasoning_effort": "high"}, ("gpt-4o", "gpt-4.1"), "no reasoning effort to set: leave"),
    ],
)
def test_a_knob_that_no_model_of_a_run_has_is_refused(
    knob: dict[str, Any], models: tuple[str, str], said: str
) -> None:
    specs = [ModelSpec(provider="openai", model=model, **knob) for model in models]
    with pytest.raises(SettingsError, match=said):
        check_knobs(*specs)
    check_knobs(specs[0], replace(specs[1], model="m-unknown"))
    check_knobs(*(replace(spec, temperature=None, reasoning_effort=None) for spec in specs))


def test_unset_sampling_is_not_sent() -> None:
    spec = ModelSpec(provider="openai_compatible", model="m", base_url=URL)
    body = create_model(spec, api_key=None)._get_request_payload("hi")
    assert set(body) == {"model", "stream", "messages"}


def test_every_provider_row_says_where_its_key_is_and_builds_a_replaying_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    for name, provider in PROVIDERS.items():
        assert provider.name == name
        assert provider.key_variable or not provider.key_required
        spec = ModelSpec(
            provider=name,
            model="rulebook-1" if name == "rulebook" else "m",
            base_url=URL if provider.has_endpoint else None,
        )
        # A script is the one thing that a live model of that provider cannot be without.
        transport: Transport = "refuse" if name == "scripted" else "open"
        model = create_model(spec, api_key="k", transport=transport)
        assert (model.provider, model.transport) == (name, transport)


@pytest.mark.parametrize(
    ("provider", "model", "method"),
    [
        ("rulebook", "rulebook-1", "json_schema"),
        ("openai", "gpt-6-astra", "json_schema"),
        ("openai", "gpt-4o-mini", "json_schema"),
        ("openai", "gpt-4o-2024-05-13", "function_calling"),
        ("openai", "gpt-4-turbo", "function_calling"),
        ("openai", "gpt-4.1-mini", "json_schema"),
        ("openai", "o1-mini", "none"),
        ("openai_compatible", "qwen3-4b", "json_schema"),
        ("openai_compatible", "DeepSeek-chat", "json_mode"),
    ],
)
def test_the_capability_table_says_how_typed_replies_are_asked_for(
    provider: str, model: str, method: str
) -> None:
    assert structured_method(ModelSpec(provider=provider, model=model)) == method


def test_the_setting_wins_over_the_table_and_a_wrong_word_is_refused() -> None:
    assert structured_method(ModelSpec(structured_method="none")) == "none"
    with pytest.raises(SettingsError, match="json_schema, function_calling, json_mode, none"):
        structured_method(ModelSpec(structured_method="jsonschema"))


def test_a_model_from_elsewhere_is_asked_through_tools() -> None:
    assert structured_method_of(object()) == "function_calling"
    assert structured_method_of(ScriptedChatModel(script=[])) == "json_schema"
    built = create_model(ModelSpec(structured_method="json_mode"), api_key=None)
    assert structured_method_of(built) == "json_mode"


def test_an_address_that_holds_the_key_is_refused_before_anything_is_written() -> None:
    spec = ModelSpec(
        provider="openai_compatible", model="m", base_url="http://127.0.0.1:1/sk-TEST-SECRET-123/v1"
    )
    with pytest.raises(SettingsError, match="base_url holds the API key") as refused:
        create_model(spec, api_key="sk-TEST-SECRET-123")
    assert "sk-TEST" not in str(refused.value)
