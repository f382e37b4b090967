"""Amazon Bedrock's Converse on loopback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("langchain_aws", reason="langchain-aws is not installed")

import boto3
from langchain_aws import ChatBedrockConverse

from tests.support.openai_server import OpenAIServer
from tests.support.provider_contract import (
    PROMPT,
    RESPONSE_FORMAT,
    SCHEMA,
    SECRET,
    TOOL,
    ThinkingContract,
)
from tests.support.provider_wires import ConverseWire, root_of
from tests.support.reply_stores import MemoryReplies
from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.factory import create_model
from tradingagents_core.settings import ModelSpec

AWS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTACCESSKEY",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent/config",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
}
VARIABLES = (
    *AWS,
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
)


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)


class TestBedrock(ThinkingContract):
    provider = "bedrock"
    wire = ConverseWire()
    # Requests are signed; the secret itself is never sent.
    key_header = None
    refusal = "taken down|has no attribute 'converse_stream'"

    def api_key(self) -> str | None:
        return None

    def library(self, server: OpenAIServer) -> Any:
        client = boto3.client(
            "bedrock-runtime", region_name="us-east-1", endpoint_url=root_of(server)
        )
        return ChatBedrockConverse(
            model=self.wire.model,
            client=client,
            bedrock_client=client,
            temperature=0.0,
            max_tokens=50,
        )

    def close(self, library: Any) -> None:
        library.client.close()

    def check_tool_answer(self, body: Mapping[str, Any], texts: list[str]) -> None:
        assert body["system"] == [{"text": "You rate stocks."}]
        first, turn, answers = body["messages"]
        assert first == {"role": "user", "content": [{"text": "Rate FB."}]}
        uses = [block["toolUse"] for block in turn["content"] if "toolUse" in block]
        results = [block["toolResult"] for block in answers["content"]]
        assert [result["content"] for result in results] == [[{"text": text}] for text in texts]
        assert [result["toolUseId"] for result in results] == [use["toolUseId"] for use in uses]

    def check_thought(self, body: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
        assert body["messages"][1] == answered["output"]["message"]

    def check_refused_tools(self, body: Mapping[str, Any]) -> None:
        # Converse has no word for it, and wants the tools of a conversation named.
        assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["get_news"]
        assert "toolChoice" not in body["toolConfig"]

    def other_model(self) -> str:
        return f"us.{self.wire.model}"

    def test_the_body_and_the_address_are_as_documented(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, temperature=0.5, max_tokens=50)
            model.bind_tools([TOOL], tool_choice="get_news").invoke(PROMPT)
        (request,) = server.requests
        assert unquote(request.path) == f"/model/{self.wire.model}/converse"
        assert "/us-east-1/bedrock/aws4_request" in request.headers["authorization"]
        assert request.body == {
            "system": [{"text": "You rate stocks."}],
            "messages": [{"role": "user", "content": [{"text": "Rate FB."}]}],
            "inferenceConfig": {"maxTokens": 50, "temperature": 0.5},
            "toolConfig": {
                "tools": [
                    {
                        "toolSpec": {
                            "name": "get_news",
                            "description": "Headlines.",
                            "inputSchema": {"json": TOOL["function"]["parameters"]},
                        }
                    }
                ],
                "toolChoice": {"tool": {"name": "get_news"}},
            },
        }

    def test_a_schema_is_asked_for_in_converses_own_field(self) -> None:
        with OpenAIServer(self.wire.text('{"rating": "Buy"}')) as server:
            self.model_at(server).invoke(PROMPT, response_format=RESPONSE_FORMAT)
        asked = server.bodies[0]["outputConfig"]["textFormat"]
        assert asked["type"] == "json_schema"
        assert json.loads(asked["structure"]["jsonSchema"]["schema"]) == SCHEMA

    def test_a_model_that_cannot_be_forced_is_offered_the_tool(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            for name in ("mistral.mistral-large-2407-v1:0", "meta.llama3-3-70b-instruct-v1:0"):
                model = self.model_at(server, model=name)
                model.bind_tools([TOOL], tool_choice="get_news").invoke("hi")
        some, free = (body["toolConfig"] for body in server.bodies)
        assert some["toolChoice"] == {"any": {}}
        assert "toolChoice" not in free

    def test_a_bearer_token_takes_the_place_of_a_signature(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Nobody looks for credentials then, which AWS also does over the network.
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
            monkeypatch.delenv(name)
        store = MemoryReplies()
        token = "bedrock-api-key-TEST-TOKEN"
        with OpenAIServer(self.wire.text(f"you sent {token}")) as server:
            model: Any = create_model(self.spec(server), api_key=token)
            model.replies = store
            assert model.invoke(PROMPT).content == "you sent [API key]"
        assert server.requests[0].headers["authorization"] == f"Bearer {token}"
        assert token not in repr((store.answers, store.calls, model))

    def test_what_is_sent_is_what_was_signed(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            model: Any = self.model_at(server)
            door, content = model._signed(model._taken_down(PROMPT, None, {}))
            model.invoke(PROMPT)
        (request,) = server.requests
        assert root_of(server) + request.path == door.url
        assert "%3A" in request.path
        assert request.body == json.loads(content)
        signed = request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0]
        assert {"host", "x-amz-date"} <= set(signed.split(";")) <= set(request.headers)

    def test_no_credential_of_aws_that_comes_back_is_kept(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", "TEST-SESSION-TOKEN")
        said = f"{SECRET} AKIATESTACCESSKEY TEST-SESSION-TOKEN"
        store = MemoryReplies()
        script = (self.wire.text(said), self.wire.error(403, said))
        with OpenAIServer(*script) as server:
            self.model_at(server, store=store).invoke(PROMPT)
        outcome = self.ends_with(script[1])
        (reply,) = store.answers.values()
        assert reply.text == "[API key] [API key] [API key]"
        for kept in (repr(store.answers), outcome.message):
            assert "TEST" not in kept

    def test_a_variable_cannot_move_the_endpoint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", root_of(server))
            monkeypatch.setenv("LANGSMITH_GATEWAY", root_of(server))
            spec = ModelSpec(provider="bedrock", model=self.wire.model)
            model: Any = create_model(spec, api_key=None)
        assert model.signer.meta.endpoint_url == "https://bedrock-runtime.us-east-1.amazonaws.com"
        assert model.endpoint == "bedrock"

    @pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
    def test_the_region_is_found_as_aws_has_it(
        self, variable: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AWS_REGION")
        monkeypatch.setenv(variable, "eu-central-1")
        model: Any = create_model(
            ModelSpec(provider="bedrock", model=self.wire.model), api_key=None
        )
        assert model.signer.meta.region_name == "eu-central-1"

    def test_a_missing_region_names_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_REGION")
        with pytest.raises(SettingsError, match="AWS_REGION"):
            create_model(ModelSpec(provider="bedrock", model=self.wire.model), api_key=None)

    def test_missing_credentials_name_the_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(SettingsError, match="AWS_ACCESS_KEY_ID") as error:
            create_model(ModelSpec(provider="bedrock", model=self.wire.model), api_key=None)
        assert "AWS_SECRET_ACCESS_KEY" in str(error.value)

    def test_a_replay_needs_neither_region_nor_credentials(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in AWS:
            monkeypatch.delenv(name)
        spec = ModelSpec(provider="bedrock", model=self.wire.model)
        model: Any = create_model(spec, api_key=None, transport="refuse")
        assert model.signer is None

    def test_a_profile_that_hides_its_model_is_refused(self) -> None:
        name = "arn:aws:bedrock:us-east-1:1:application-inference-profile/x"
        with pytest.raises(SettingsError, match="does not say which model"):
            create_model(ModelSpec(provider="bedrock", model=name), api_key=None)

    def test_a_filtered_answer_is_an_outcome_of_its_own(self) -> None:
        for reason in ("content_filtered", "guardrail_intervened"):
            assert self.ends_with(self.wire.message([{"text": "no"}], reason)).kind == (
                "content_filter"
            )

    def test_a_model_that_broke_down_is_tried_again(self) -> None:
        script = (self.wire.error(424, "model error", retry_after="0"), self.wire.text("ok"))
        with OpenAIServer(*script) as server:
            assert self.model_at(server, max_retries=1).invoke(PROMPT).content == "ok"

    def test_a_knob_goes_into_the_models_own_fields(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            changes = {"model": "global.anthropic.claude-opus-5-v1:0", "temperature": 0.0}
            self.model_at(server, **changes, reasoning_effort="high").invoke("hi")
        (body,) = server.bodies
        assert body["additionalModelRequestFields"] == {
            "output_config": {"effort": "high"},
            "thinking": {"type": "adaptive"},
        }
        assert "temperature" not in body.get("inferenceConfig", {})
