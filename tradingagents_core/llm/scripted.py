"""The provider ``scripted``: answers that a user writes down, for trying out a run without a model.

The answer to a prompt is the first reply of the script that fits it, whatever was asked before, so
that neither the order of calls nor the number of workers can change a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage, ToolMessage

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.capabilities import Transport, structured_method
from tradingagents_core.llm.doubles import ReplayingScriptedModel, tool_reply
from tradingagents_core.llm.keys import canonical_json, sha256_hex
from tradingagents_core.llm.replaying import CallFailed
from tradingagents_core.protocols import CURRENT_SITE, Reply
from tradingagents_core.settings import ModelSpec, ScriptedReply


class ReplayingScript(ReplayingScriptedModel):
    """Answer by a user's script behind the recording layer.

    Attributes:
        fingerprint: Hash of the script, part of each request: another script is another model.
    """

    fingerprint: str = ""

    def _get_request_payload(
        self, messages: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        body = super()._get_request_payload(messages, stop=stop, **kwargs)
        return {**body, "script": self.fingerprint}


def build_scripted(spec: ModelSpec, transport: Transport) -> ReplayingScript:
    """Build the model that follows a spec's script.

    Raises:
        SettingsError: There is no script; a replay asks nothing and needs none.
    """
    if not spec.script and transport == "open":
        raise SettingsError(
            "provider 'scripted' has no script: name a TOML file with --set script=FILE "
            "('backtester models scripted' shows one)"
        )
    document = canonical_json([asdict(reply) for reply in spec.script])
    return ReplayingScript(
        script=_follow(spec.script),
        fingerprint=sha256_hex(document)[:16],
        model=spec.model,
        temperature=spec.temperature,
        provider=spec.provider,
        endpoint=spec.endpoint_alias or spec.provider,
        structured_method=structured_method(spec),
        transport=transport,
    )


def _follow(
    script: Sequence[ScriptedReply],
) -> Callable[[list[BaseMessage], Mapping[str, Any]], Reply]:
    def answer(messages: list[BaseMessage], _: Mapping[str, Any]) -> Reply:
        node = CURRENT_SITE.get().node
        prompt = "\n".join(str(message.text) for message in messages)
        turn = sum(isinstance(message, ToolMessage) for message in messages)
        for reply in script:
            if _fits(reply, node, prompt, turn):
                return _said(reply)
        raise CallFailed(
            "rejected",
            f"no reply of the script fits node {node or '(none)'} after {turn} tool answers: "
            "add one, or one without conditions at the end",
        )

    return answer


def _fits(reply: ScriptedReply, node: str, prompt: str, turn: int) -> bool:
    return (
        reply.node in (None, node)
        and (reply.contains is None or reply.contains in prompt)
        and reply.tool_answers in (None, turn)
    )


def _said(reply: ScriptedReply) -> Reply:
    if reply.tools:
        return tool_reply(*((tool.name, tool.args) for tool in reply.tools), text=reply.text)
    return Reply(text=reply.text, finish_reason=reply.finish_reason)
