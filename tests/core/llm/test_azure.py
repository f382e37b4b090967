"""OpenAI's models in Azure, on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from langchain_openai import AzureChatOpenAI

from tests.support.openai_server import OpenAIServer, Received, error
from tests.support.provider_contract import (
    PROMPT,
    RESPONSE_FORMAT,
    SECRET,
    TOOL,
    ProviderContract,
    own_client,
)
from tests.support.provider_wires import AzureWire, root_of
from tests.support.reply_stores import MemoryReplies
from tradingagents_core.errors import ReplayMiss, SettingsError
from tradingagents_core.llm.factory import create_model
from tradingagents_core.settings import ModelSpec


class TestAzure(ProviderContract):
    provider = "azure"
    wire = AzureWire()
    methods = ("json_schema", "function_calling", "json_mode")
    key_header = "api-key"

    def library(self, server: OpenAIServer) -> Any:
        return AzureChatOpenAI(
            azure_deployment=self.wire.model,
            model=self.wire.model,
            api_key=SECRET,
            http_client=own_client(),
            azure_endpoint=root_of(server),
            api_version="2024-10-21",
            temperature=0.0,
            max_tokens=50,
        )

    def close(self, library: Any) -> None:
        library.root_client.close()

    def sent(self, received: Received) -> Mapping[str, Any]:
        return {name: value for name, value in received.body.items() if name != "stream"}

    def check_tool_answer(self, body: Mapping[str, Any], texts: list[str]) -> None:
        turn, answers = body["messages"][2], body["messages"][3:]
        assert [(answer["role"], answer["content"]) for answer in answers] == [
            ("tool", text) for text in texts
        ]
        assert [answer["tool_call_id"] for answer in answers] == [
            call["id"] for call in turn["tool_calls"]
        ]

    def check_refused_tools(self, body: Mapping[str, Any]) -> None:
        assert body["tools"] == [TOOL]
        assert body["tool_choice"] == "none"

    def test_the_body_and_the_address_are_as_documented(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, temperature=0.5, max_tokens=50)
            model.invoke(PROMPT, response_format=RESPONSE_FORMAT)
        (request,) = server.requests
        assert request.path == (
            "/openai/deployments/my-gpt-4o/chat/completions?api-version=2024-10-21"
        )
        assert request.body == {
            "model": "my-gpt-4o",
            "temperature": 0.5,
            "max_completion_tokens": 50,
            "messages": [
                {"role": "system", "content": "You rate stocks."},
                {"role": "user", "content": "Rate FB."},
            ],
            "response_format": RESPONSE_FORMAT,
        }

    def test_a_deployment_and_a_version_with_odd_signs_stay_in_their_places(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            changes = {"model": "a/b?c#d", "api_version": "2025&x=1"}
            self.model_at(server, **changes).invoke("hi")
        (request,) = server.requests
        assert request.path == (
            "/openai/deployments/a%2Fb%3Fc%23d/chat/completions?api-version=2025%26x%3D1"
        )

    def test_the_version_is_in_the_key_and_the_resource_is_not_where_it_has_an_alias(self) -> None:
        def key(host: str, **changes: Any) -> str:
            store = MemoryReplies("replay")
            spec = ModelSpec(
                provider="azure", model="m", base_url=f"https://{host}.openai.azure.com", **changes
            )
            model: Any = create_model(spec, api_key=None, transport="refuse")
            model.replies = store
            with pytest.raises(ReplayMiss):
                model.invoke("hi")
            return store.calls[0].key

        aliased = {"endpoint_alias": "our-azure"}
        assert key("one", **aliased) == key("two", **aliased)
        assert key("one") != key("two")
        assert key("one") != key("one", api_version="2025-04-01-preview")
        assert key("one") == key("one", api_version="2024-10-21")

    def test_a_missing_endpoint_names_the_variable(self) -> None:
        with pytest.raises(SettingsError, match="AZURE_OPENAI_ENDPOINT"):
            create_model(ModelSpec(provider="azure", model="m"), api_key=SECRET)

    def test_a_missing_key_names_the_variable(self) -> None:
        spec = ModelSpec(provider="azure", model="m", base_url="https://r.openai.azure.com")
        with pytest.raises(SettingsError, match="AZURE_OPENAI_API_KEY"):
            create_model(spec, api_key=None)

    def test_variables_of_the_library_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AZURE_OPENAI_AD_TOKEN", "OPENAI_API_VERSION", "OPENAI_API_BASE"):
            monkeypatch.setenv(name, f"https://elsewhere.invalid/{name}/openai")
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server).invoke("hi")
        assert server.requests[0].path.endswith("?api-version=2024-10-21")

    def test_a_filtered_prompt_is_told_from_a_broken_request(self) -> None:
        filtered = error(400, "The response was filtered", code="content_filter")
        assert self.ends_with(filtered).kind == "content_filter"
