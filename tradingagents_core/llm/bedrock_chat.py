"""Models in Amazon Bedrock by its Converse interface, recorded and replayed.

`ChatBedrockConverse` has no method that only builds a request, so it is run against a client that
takes the request down and stops there. What it took down is keyed. boto3 writes and signs it, with
region and credentials as AWS has them, and `posting` sends it. A replay makes no boto3 client.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Never

import boto3
import orjson
from botocore import UNSIGNED
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import Loader, create_loader
from botocore.session import Session, get_session
from langchain_aws import ChatBedrockConverse
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from pydantic import Field, SecretStr

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.capabilities import (
    NO_KEY,
    Transport,
    effort_of,
    temperature_of,
)
from tradingagents_core.llm.logs import keep_out_of_logs
from tradingagents_core.llm.patience import Patience, persist
from tradingagents_core.llm.posting import Door, attempt, recording_fields
from tradingagents_core.llm.reading import (
    MalformedReply,
    as_list,
    as_mapping,
    as_text,
    clean,
    json_object,
    kept_json,
    token_count,
    tool_call,
    with_ids,
)
from tradingagents_core.llm.replaying import CallFailed, LiveReply, LiveRequest, ReplayingModel
from tradingagents_core.llm.thoughts import with_thoughts
from tradingagents_core.protocols import Reply, Usage
from tradingagents_core.settings import ModelSpec

# Marks kept thoughts as Bedrock's.
WIRE = "bedrock"
# AWS's other clients know the first, its Python client but the second.
_REGION_VARIABLES: Final = ["AWS_REGION", "AWS_DEFAULT_REGION"]


class ReplayingChatBedrock(ReplayingModel, ChatBedrockConverse):
    """Call a model in Amazon Bedrock behind the recording layer.

    Attributes:
        patience: How long one call is tried.
        timeout_s: Longest silence of the server.
        signer: A boto3 client that writes and signs requests and sends none; None in a replay.
        token: Bearer token that takes the place of a signature, or None.
        secrets: Credentials that no record may hold.
    """

    patience: Patience = Field(default=Patience(max_retries=0, budget_s=0.0), exclude=True)
    timeout_s: float = Field(default=120.0, exclude=True)
    signer: Any = Field(default=None, exclude=True, repr=False)
    token: SecretStr | None = Field(default=None, exclude=True, repr=False)
    secrets: tuple[SecretStr, ...] = Field(default=(), exclude=True, repr=False)

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Bind tools, forced as far as the model can be.

        Converse cannot refuse tools, and wants them named while a conversation holds calls of
        them: with ``none`` the model is free to call.

        Args:
            tools: As LangChain has them.
            tool_choice: ``auto, any, none``, the name of a tool, or the interface's own object.
            kwargs: Bound as they are.
        """
        return super().bind_tools(tools, tool_choice=self._possible(tool_choice), **kwargs)

    def _possible(self, choice: Any) -> Any:
        if choice in (None, "none"):
            return None
        able = self.supports_tool_choice_values or ()
        if isinstance(choice, str) and choice not in ("auto", "any") and "tool" not in able:
            choice = "any"
        return choice if choice not in ("auto", "any") or choice in able else None

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        taken = self._taken_down(self._convert_input(input_).to_messages(), stop, kwargs)
        body: dict[str, Any] = _as_json({"model": taken.pop("modelId"), **taken})
        return body

    def _taken_down(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the request that the class would send."""
        # The class trims the last message in place.
        copies = [message.model_copy(deep=True) for message in messages]
        try:
            ChatBedrockConverse._generate(
                self, with_thoughts(copies, WIRE, _blocks), stop, **_without_json_mode(kwargs)
            )
        except _TakenDown as taken:
            return taken.request
        raise AssertionError("the class did not call its client")

    def _live_reply(self, request: LiveRequest) -> LiveReply:
        taken = self._taken_down(request.messages, request.stop, request.arguments)
        read = functools.partial(reply_from_converse, model=str(taken["modelId"]))

        def once() -> Reply:
            # A signature holds for minutes: each try has its own.
            door, content = self._signed(taken)
            return attempt(door, content, read)

        seed = orjson.dumps(request.body)
        return persist(once, self.patience, seed=seed, meter=request.meter)

    def _signed(self, taken: dict[str, Any]) -> tuple[Door, bytes]:
        """Let boto3 write and sign a request, and take it before it is sent."""
        if self.signer is None:
            raise CallFailed("transport", "replay: no request to Bedrock")
        request = _prepared(self.signer, taken)
        headers = {name: _text(value) for name, value in request.headers.items()}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.get_secret_value()}"
        door = Door(
            url=request.url,
            headers=headers,
            secrets=self._held(),
            timeout_s=self.timeout_s,
            transport=self.transport,
        )
        return door, request.body

    def _held(self) -> tuple[str, ...]:
        return tuple(secret.get_secret_value() for secret in self.secrets)

    def _secret(self) -> str | None:
        return next(iter(self._held()), None)


def build_bedrock_chat(
    spec: ModelSpec, api_key: str | None, transport: Transport
) -> ReplayingChatBedrock:
    """Build the model of a spec.

    Args:
        spec: What to build; ``base_url`` is an endpoint of the runtime, or None for the region's.
        api_key: Bearer token of Bedrock, or None for the credentials that AWS finds.
        transport: ``refuse`` for replays, which need neither region nor credentials.

    Raises:
        SettingsError: There is no region or no credential, or the model cannot be built so.
    """
    if "application-inference-profile" in spec.model:
        raise SettingsError(
            "an application inference profile does not say which model it is: name the model, or "
            "one of Amazon's own profiles, like us.anthropic.claude-sonnet-4-5-20250929-v1:0"
        )
    settings: dict[str, Any] = {
        **recording_fields(spec, transport, own_url=None),
        "model": spec.model,
        "client": _Taker(),
        "bedrock_client": _Taker(),
        "temperature": temperature_of(spec),
        "max_tokens": spec.max_tokens,
        "disable_streaming": False,
        "timeout_s": spec.timeout_s,
    }
    if effort := effort_of(spec):
        settings["additional_model_request_fields"] = dict(effort)
    if transport == "open":
        session = _session(api_key)
        settings["signer"] = _signer(session, spec, api_key)
        settings["token"] = None if api_key is None else SecretStr(api_key)
        settings["secrets"] = tuple(_secrets(session, api_key))
    try:
        return ReplayingChatBedrock(**settings)
    except ValueError as error:
        raise SettingsError(f"model {spec.model!r} cannot be built so: {error}") from error


# ------------------------------------------------------------------------------------ the request


class _TakenDown(Exception):
    """Carry the request that a class was about to send."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__("taken down")
        self.request = request


class _Taker:
    """Stand in for a boto3 client: take a request down, and send nothing."""

    def converse(self, **request: Any) -> Never:
        raise _TakenDown(request)


def _without_json_mode(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Leave out the wish for any JSON object, which Converse does not know; the prompt has it."""
    wish = kwargs.get("response_format")
    if isinstance(wish, Mapping) and wish.get("type") == "json_object":
        return {name: value for name, value in kwargs.items() if name != "response_format"}
    return kwargs


def _as_json(value: Any) -> Any:
    """Write bytes, which Converse has for images and hidden thoughts, as base64 with a mark."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _blocks(kept: list[Any]) -> list[Any]:
    """Return the kept blocks of a turn; on the wire the hidden thoughts in them are base64."""
    return [_with_bytes(block) for block in kept if isinstance(block, Mapping)]


def _with_bytes(block: Mapping[str, Any]) -> dict[str, Any]:
    hidden = as_mapping(block.get("reasoningContent")).get("redactedContent")
    if not isinstance(hidden, str):
        return dict(block)
    return {"reasoningContent": {"redactedContent": base64.b64decode(hidden)}}


# ------------------------------------------------------------------------------------- the client


@functools.cache
def _loader() -> Loader:
    """Return the one reader of boto3's descriptions of services, which take long to read."""
    return create_loader()


def _session(api_key: str | None) -> Session:
    """Return a session with AWS's own ways to a region and to credentials.

    Raises:
        SettingsError: There is no credential.
    """
    session = get_session()
    session.register_component("data_loader", _loader())
    session.session_var_map["region"] = ("region", _REGION_VARIABLES, None, None)
    if api_key is None and session.get_credentials() is None:
        raise SettingsError(
            "provider 'bedrock' needs credentials: set the environment variables "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
            "AWS_BEARER_TOKEN_BEDROCK"
        )
    return session


def _signer(session: Session, spec: ModelSpec, api_key: str | None) -> Any:
    """Return a client that writes and signs requests, and sends none.

    Raises:
        SettingsError: There is no region.
    """
    if session.get_config_variable("region") is None:
        raise SettingsError(
            "provider 'bedrock' needs a region: set the environment variable AWS_REGION, or a "
            "region in your AWS profile"
        )
    # The address is a setting; a variable that moves it would not be in the key.
    config = Config(retries={"total_max_attempts": 1}, ignore_configured_endpoint_urls=True)
    settings: dict[str, Any] = {"endpoint_url": spec.base_url, "config": config}
    if api_key is not None:
        # Nothing is signed, and no credential looked for: AWS's ways to one include the network.
        settings["config"] = config.merge(Config(signature_version=UNSIGNED))
        settings |= {"aws_access_key_id": NO_KEY, "aws_secret_access_key": NO_KEY}
    try:
        client = boto3.Session(botocore_session=session).client("bedrock-runtime", **settings)
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(f"provider 'bedrock' cannot be reached so: {error}") from error
    client.meta.events.register("before-send.bedrock-runtime.Converse", _take_signed)
    return client


def _prepared(signer: Any, taken: dict[str, Any]) -> AWSPreparedRequest:
    try:
        signer.converse(**taken)
    except _Signed as signed:
        return signed.request
    except BotoCoreError as error:
        raise CallFailed("transport", f"the request cannot be signed: {error}") from None
    raise AssertionError("the request was not taken before it was sent")


def _take_signed(request: AWSPreparedRequest, **_: Any) -> Never:
    raise _Signed(request)


class _Signed(Exception):
    """Carry a signed request that was about to be sent."""

    def __init__(self, request: AWSPreparedRequest) -> None:
        super().__init__("signed")
        self.request = request


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _secrets(session: Session, api_key: str | None) -> Iterator[SecretStr]:
    if api_key is not None:
        yield SecretStr(api_key)
        return
    credentials = session.get_credentials()
    for secret in (credentials.secret_key, credentials.access_key, credentials.token):
        if secret:
            keep_out_of_logs(secret)
            yield SecretStr(secret)


# ------------------------------------------------------------------------------------- the answer


def reply_from_converse(raw: str, *, model: str) -> Reply:
    """Read the JSON text of an answer of Converse, which does not say which model gave it.

    Raises:
        MalformedReply: Where it is no JSON or has no message.
    """
    document = json_object(raw)
    message = as_mapping(document.get("output")).get("message")
    if not isinstance(message, Mapping):
        raise MalformedReply(f"the answer has no message: {raw[:200]}")
    kept = as_list(message.get("content"))
    blocks = [as_mapping(block) for block in kept]
    calls = [
        tool_call(call.get("toolUseId"), {"name": call.get("name"), "arguments": call.get("input")})
        for call in (as_mapping(block.get("toolUse")) for block in blocks)
        if call
    ]
    thoughts = [as_mapping(block.get("reasoningContent")) for block in blocks]
    thought = [as_text(as_mapping(item.get("reasoningText")).get("text")) for item in thoughts]
    text = "".join(as_text(block.get("text")) for block in blocks)
    reason = as_text(document.get("stopReason"))
    return Reply(
        text=text,
        tool_calls=with_ids(calls),
        finish_reason=reason,
        usage=_usage(as_mapping(document.get("usage"))),
        model=model,
        refusal=(text or "the provider gave no reason") if reason == "refusal" else None,
        raw=clean(raw),
        reasoning="\n\n".join(filter(None, thought)) or None,
        opaque=kept_json({WIRE: kept}) if any(thoughts) else None,
    )


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Return the tokens of a call; those of the provider's cache are counted apart."""
    fresh = token_count(usage.get("inputTokens"))
    written = token_count(usage.get("cacheWriteInputTokens")) or 0
    read = token_count(usage.get("cacheReadInputTokens"))
    return Usage(
        input_tokens=None if fresh is None else fresh + written + (read or 0),
        output_tokens=token_count(usage.get("outputTokens")),
        cached_tokens=read or None,
    )
