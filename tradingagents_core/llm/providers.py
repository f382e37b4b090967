"""The table of model providers: a row says where a provider is, where its key is, what it is like.

A row builds its models through a function that imports their classes when it is called, so that
the rulebook needs no client library and a command line that builds no model starts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from tradingagents_core.llm.capabilities import NO_KEY, Transport, structured_method
from tradingagents_core.settings import ModelSpec

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

Build = Callable[[ModelSpec, str | None, Transport], "BaseChatModel"]
Quirk = Literal["responses", "max_completion_tokens"]


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Describe a row of the provider table.

    Attributes:
        name: Value of the setting ``provider``.
        build: Makes a model of a spec, given its key (or None) and transport.
        own_url: Its own endpoint, or None.
        has_endpoint: Whether ``base_url`` means anything to it.
        url_variable: Environment variable that moves its endpoint, or None.
        host_variable: Another such variable, in which scheme and path may be left out.
        version_variable: Environment variable that names the version of its interface, or None.
        key_variable: Environment variable that holds its key, or None where it has none.
        other_key_variable: Another one that does, read where the first is not set.
        other_secrets: Further variables whose values no file may hold.
        key_required: Whether a live model needs the key.
        free: Whether its calls cost nothing.
        package: Distribution that has its client, or None where it comes with this project.
        extra: Extra of this project that brings the package, or None.
        quirks: How it differs from other servers of the same protocol: ``responses`` (its own
            endpoint is spoken to in the Responses API, the only one in which OpenAI's reasoning
            models keep their thoughts over tool calls) and ``max_completion_tokens`` (its name
            for the limit of a reply).
    """

    name: str
    build: Build
    own_url: str | None = None
    has_endpoint: bool = True
    url_variable: str | None = None
    host_variable: str | None = None
    version_variable: str | None = None
    key_variable: str | None = None
    other_key_variable: str | None = None
    other_secrets: tuple[str, ...] = ()
    key_required: bool = True
    free: bool = False
    package: str | None = None
    extra: str | None = None
    quirks: frozenset[Quirk] = frozenset()

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Variables that may hold its key, the first one set wins."""
        return tuple(filter(None, (self.key_variable, self.other_key_variable)))

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """Variables whose values no file may hold."""
        return (*self.key_variables, *self.other_secrets)


def _build_rulebook(spec: ModelSpec, api_key: str | None, transport: Transport) -> BaseChatModel:
    from tradingagents_core.llm.replaying_rulebook import ReplayingRulebook

    return ReplayingRulebook(
        model=spec.model,
        provider=spec.provider,
        endpoint=spec.endpoint_alias or spec.provider,
        structured_method=structured_method(spec),
        transport=transport,
    )


def _build_openai(spec: ModelSpec, api_key: str | None, transport: Transport) -> BaseChatModel:
    from tradingagents_core.llm.openai_chat import build_openai_chat

    row = PROVIDERS[spec.provider]
    new_name = "max_completion_tokens" in row.quirks
    return build_openai_chat(
        spec,
        api_key=api_key or NO_KEY,
        base_url=spec.base_url or row.own_url or "",
        own_url=row.own_url,
        transport=transport,
        limit_field="max_completion_tokens" if new_name else "max_tokens",
        responses="responses" in row.quirks,
    )


def _build_scripted(spec: ModelSpec, api_key: str | None, transport: Transport) -> BaseChatModel:
    from tradingagents_core.llm.scripted import build_scripted

    return build_scripted(spec, transport)


def _build_anthropic(spec: ModelSpec, api_key: str | None, transport: Transport) -> BaseChatModel:
    from tradingagents_core.llm.anthropic_chat import build_anthropic_chat

    return build_anthropic_chat(spec, api_key, transport)


def _build_google(spec: ModelSpec, api_key: str | None, transport: Transport) -> BaseChatModel:
    from tradingagents_core.llm.google_chat import build_google_chat

    return build_google_chat(spec, api_key, transport)


def _build_azure(spec: ModelSpec, api_key: str | None, transport: Transport) -> BaseChatModel:
    from tradingagents_core.llm.azure_chat import build_azure_chat

    return build_azure_chat(spec, api_key, transport)


def _build_bedrock(spec: ModelSpec, api_key: str | None, transport: Transport) -> BaseChatModel:
    from tradingagents_core.llm.bedrock_chat import build_bedrock_chat

    return build_bedrock_chat(spec, api_key, transport)


def _on_the_wire(name: str, own_url: str, variables: str, *quirks: Quirk) -> Provider:
    """Return the row of a service that speaks OpenAI's protocol and wants a key."""
    return Provider(
        name=name,
        build=_build_openai,
        own_url=own_url,
        url_variable=f"{variables}_BASE_URL",
        key_variable=f"{variables}_API_KEY",
        quirks=frozenset(quirks),
    )


_ROWS = (
    Provider(
        name="rulebook",
        build=_build_rulebook,
        has_endpoint=False,
        key_required=False,
        free=True,
    ),
    Provider(
        name="scripted",
        build=_build_scripted,
        has_endpoint=False,
        key_required=False,
        free=True,
    ),
    _on_the_wire("openai", "https://api.openai.com/v1", "OPENAI", "responses"),
    Provider(
        name="openai_compatible",
        build=_build_openai,
        url_variable="OPENAI_COMPATIBLE_BASE_URL",
        key_variable="OPENAI_COMPATIBLE_API_KEY",
        key_required=False,
    ),
    Provider(
        name="ollama",
        build=_build_openai,
        own_url="http://127.0.0.1:11434/v1",
        url_variable="OLLAMA_BASE_URL",
        host_variable="OLLAMA_HOST",
        key_variable="OLLAMA_API_KEY",
        key_required=False,
        free=True,
    ),
    _on_the_wire("xai", "https://api.x.ai/v1", "XAI", "max_completion_tokens"),
    _on_the_wire("deepseek", "https://api.deepseek.com", "DEEPSEEK"),
    _on_the_wire("qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE"),
    _on_the_wire("qwen-cn", "https://dashscope.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_CN"),
    _on_the_wire("glm", "https://api.z.ai/api/paas/v4", "ZHIPU"),
    _on_the_wire("glm-cn", "https://open.bigmodel.cn/api/paas/v4", "ZHIPU_CN"),
    _on_the_wire("minimax", "https://api.minimax.io/v1", "MINIMAX", "max_completion_tokens"),
    _on_the_wire(
        "minimax-cn", "https://api.minimaxi.com/v1", "MINIMAX_CN", "max_completion_tokens"
    ),
    _on_the_wire("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER"),
    _on_the_wire("mistral", "https://api.mistral.ai/v1", "MISTRAL"),
    _on_the_wire("kimi", "https://api.moonshot.ai/v1", "MOONSHOT", "max_completion_tokens"),
    _on_the_wire("groq", "https://api.groq.com/openai/v1", "GROQ", "max_completion_tokens"),
    _on_the_wire("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA"),
    Provider(
        name="anthropic",
        build=_build_anthropic,
        own_url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        package="langchain-anthropic",
        extra="anthropic",
    ),
    Provider(
        name="google",
        build=_build_google,
        own_url="https://generativelanguage.googleapis.com",
        url_variable="GOOGLE_GEMINI_BASE_URL",
        key_variable="GOOGLE_API_KEY",
        other_key_variable="GEMINI_API_KEY",
        package="langchain-google-genai",
        extra="google",
    ),
    Provider(
        name="azure",
        build=_build_azure,
        url_variable="AZURE_OPENAI_ENDPOINT",
        version_variable="OPENAI_API_VERSION",
        key_variable="AZURE_OPENAI_API_KEY",
    ),
    Provider(
        name="bedrock",
        build=_build_bedrock,
        # The runtime of whatever region AWS's own settings name.
        own_url="https://bedrock-runtime.REGION.amazonaws.com",
        # A token; the other ways to credentials are AWS's own.
        key_variable="AWS_BEARER_TOKEN_BEDROCK",
        other_secrets=("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        key_required=False,
        package="langchain-aws",
        extra="bedrock",
    ),
)
PROVIDERS: Mapping[str, Provider] = MappingProxyType({row.name: row for row in _ROWS})
