"""Google's Gemini API on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("langchain_google_genai", reason="langchain-google-genai is not installed")

from langchain_google_genai import ChatGoogleGenerativeAI

from tests.support.openai_server import Act, OpenAIServer, Received
from tests.support.provider_contract import (
    PROMPT,
    RESPONSE_FORMAT,
    SCHEMA,
    SECRET,
    TOOL,
    ThinkingContract,
)
from tests.support.provider_wires import SIGNATURE, GeminiWire, root_of
from tests.support.reply_stores import MemoryReplies
from tradingagents_core.errors import PipelineError


class TestGoogle(ThinkingContract):
    provider = "google"
    wire = GeminiWire()
    methods = ("json_schema", "function_calling", "json_mode")
    key_header = "x-goog-api-key"

    def library(self, server: OpenAIServer) -> Any:
        return ChatGoogleGenerativeAI(
            model=self.wire.model,
            google_api_key=SECRET,
            vertexai=False,
            base_url=root_of(server),
            temperature=0.0,
            max_output_tokens=50,
        )

    def close(self, library: Any) -> None:
        library.client.close()

    def sent(self, received: Received) -> Mapping[str, Any]:
        # The library sends an empty list of safety settings, which sets none.
        return {name: value for name, value in received.body.items() if value != []}

    def check_tool_answer(self, body: Mapping[str, Any], texts: list[str]) -> None:
        first, turn, answers = body["contents"]
        assert first == {"role": "user", "parts": [{"text": "Rate FB."}]}
        assert [part["functionCall"]["name"] for part in turn["parts"]] == ["get_news"] * len(texts)
        assert answers == {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "get_news", "response": {"output": text}}}
                for text in texts
            ],
        }

    def check_thought(self, body: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
        assert body["contents"][1] == answered["candidates"][0]["content"]

    def check_refused_tools(self, body: Mapping[str, Any]) -> None:
        (tool,) = body["tools"]
        assert [function["name"] for function in tool["functionDeclarations"]] == ["get_news"]
        assert body["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}

    def test_the_body_and_the_address_are_as_documented(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server, temperature=0.5, max_tokens=50)
            model.bind_tools([TOOL], tool_choice="get_news").invoke(PROMPT)
        (request,) = server.requests
        assert request.path == "/v1/models/gemini-2.5-flash:generateContent"
        assert request.body == {
            "systemInstruction": {"parts": [{"text": "You rate stocks."}]},
            "contents": [{"role": "user", "parts": [{"text": "Rate FB."}]}],
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "get_news",
                            "description": "Headlines.",
                            "parameters": {
                                "type": "OBJECT",
                                "properties": {
                                    "ticker": {"type": "STRING"},
                                    "look_back_days": {"type": "INTEGER", "description": "Days."},
                                },
                                "required": ["ticker"],
                            },
                        }
                    ]
                }
            ],
            "toolConfig": {
                "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get_news"]}
            },
            "generationConfig": {
                "temperature": 0.5,
                "maxOutputTokens": 50,
                "candidateCount": 1,
            },
        }

    def test_a_schema_is_asked_for_in_geminis_own_field(self) -> None:
        with OpenAIServer(self.wire.text('{"rating": "Buy"}')) as server:
            self.model_at(server).invoke(PROMPT, response_format=RESPONSE_FORMAT)
        asked = server.bodies[0]["generationConfig"]
        assert asked["responseMimeType"] == "application/json"
        assert asked["responseJsonSchema"] == SCHEMA

    def test_a_knob_is_sent_in_the_words_of_the_models_generation(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server, reasoning_effort="low").invoke("hi")
            self.model_at(server, reasoning_effort="none").invoke("hi")
            self.model_at(server, model="gemini-3-pro-preview", reasoning_effort="low").invoke("hi")
            self.model_at(server, model="gemini-3.6-flash", temperature=0.0).invoke("hi")
        budget, none, level, fixed = (body["generationConfig"] for body in server.bodies)
        assert budget["thinkingConfig"] == {"thinkingBudget": 1024}
        assert none["thinkingConfig"] == {"thinkingBudget": 0}
        assert level["thinkingConfig"] == {"thinkingLevel": "LOW"}
        assert "temperature" not in budget
        assert "temperature" not in fixed

    def test_the_signature_of_a_text_goes_back_with_it(self) -> None:
        parts = [{"text": "I wait.", "thoughtSignature": SIGNATURE}]
        with OpenAIServer(self.wire.candidate(parts, "STOP")) as server:
            model = self.model_at(server, model="gemini-3-pro-preview")
            turn = model.invoke(PROMPT)
            model.invoke([*PROMPT, turn, PROMPT[1]])
        assert turn.content == "I wait."
        assert server.bodies[1]["contents"][1] == {"role": "model", "parts": parts}

    def test_the_id_of_a_call_stays_here_where_no_answer_names_it(self) -> None:
        call = {"name": "get_news", "args": {}, "id": "fc-1"}
        part = {"functionCall": call, "thoughtSignature": SIGNATURE}
        with OpenAIServer(self.wire.candidate([part], "STOP")) as server:
            model = self.model_at(server)
            turn = model.invoke(PROMPT)
            model.invoke([*PROMPT, turn])
        assert turn.tool_calls[0]["id"] == "fc-1"
        (sent,) = server.bodies[1]["contents"][1]["parts"]
        assert sent == {
            "functionCall": {"name": "get_news", "args": {}},
            "thoughtSignature": SIGNATURE,
        }

    @pytest.mark.parametrize("reason", ["SAFETY", "PROHIBITED_CONTENT", "RECITATION", "SPII"])
    def test_a_filtered_answer_is_an_outcome_of_its_own(self, reason: str) -> None:
        act = self.wire.candidate([], reason)
        assert self.ends_with(act).kind == "content_filter"

    def test_a_filtered_prompt_is_told_from_an_answer_without_one(self) -> None:
        usage = {"promptTokenCount": 11}
        blocked = Act(body={"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage})
        outcome = self.ends_with(blocked)
        assert outcome.kind == "content_filter"
        assert "the prompt (SAFETY)" in outcome.message
        unread = Act(body={"usageMetadata": usage})
        assert self.ends_with(unread, lost=True).kind == "transport"

    def test_the_version_of_the_interface_is_in_the_address_and_in_the_key(self) -> None:
        store = MemoryReplies()
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server, store=store).invoke("hi")
            self.model_at(server, store=store, api_version="v1beta").invoke("hi")
            self.model_at(server, store=store, api_version="2024-10-21").invoke("hi")
        assert [request.path.split("/")[1] for request in server.requests] == ["v1", "v1beta"]
        assert "api_version" not in server.bodies[0]

    def test_a_name_with_odd_signs_stays_in_its_place(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            self.model_at(server, model="a?b#c").invoke("hi")
            self.model_at(server, model="tunedModels/mine").invoke("hi")
        assert [request.path for request in server.requests] == [
            "/v1/models/a%3Fb%23c:generateContent",
            "/v1/tunedModels/mine:generateContent",
        ]

    def test_several_replies_to_one_call_are_refused(self) -> None:
        with OpenAIServer(self.wire.text("ok")) as server:
            model = self.model_at(server)
            with pytest.raises(PipelineError, match="use trials"):
                model.invoke("hi", candidate_count=2)
        assert server.requests == []
