"""The one place where chat models are built: a table of providers and `create_model`.

A provider's classes are imported when a model of it is built, so that the rulebook needs no client
library and a command line that builds no model starts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.capabilities import NO_KEY, Transport, structured_method
from tradingagents_core.settings import ModelSpec

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

OPENAI_URL = "https://api.openai.com/v1"
# Shorter keys are dummies, and may stand in an address by chance.
LEAST_KEY = 8
OPENAI_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Describe a row of the provider table.

    Attributes:
        name: Value of the setting ``provider``.
        build: Makes a model of a spec, given its key (or None) and transport.
        key_variable: Environment variable that holds its key, or None where it has none.
        key_required: Whether a live model needs the key.
        own_url: Its own endpoint, or None.
        has_endpoint: Whether ``base_url`` means anything to it.
        free: Whether its calls cost nothing.
        efforts: Words that it takes for ``reasoning_effort``; none where it has no such knob.
    """

    name: str
    build: Callable[[ModelSpec, str | None, Transport], BaseChatModel]
    key_variable: str | None
    key_required: bool
    own_url: str | None
    has_endpoint: bool
    free: bool
    efforts: tuple[str, ...] = ()


def create_model(
    spec: ModelSpec, *, api_key: str | None, transport: Transport = "open"
) -> BaseChatModel:
    """Build the chat model of a spec.

    Args:
        spec: Provider, model, endpoint and sampling.
        api_key: Key of the provider, or None. The caller reads it where keys are kept.
        transport: ``refuse`` builds a model for replays: it needs no key, and no request of it
            can leave the machine.

    Raises:
        SettingsError: For an unknown provider, a missing key (naming its variable), or an
            endpoint that is missing, malformed or holds a credential, or a reasoning effort that
            the provider does not know.
    """
    provider = PROVIDERS.get(spec.provider)
    if provider is None:
        raise SettingsError(
            f"unknown provider {spec.provider!r}: write one of {', '.join(PROVIDERS)}"
        )
    _check_endpoint(provider, spec)
    if api_key and len(api_key) >= LEAST_KEY and api_key in (spec.base_url or ""):
        raise SettingsError(
            "base_url holds the API key, which would be written into manifests: "
            f"put the key into {provider.key_variable} alone"
        )
    _check_effort(provider, spec)
    if provider.key_required and not api_key and transport == "open":
        raise SettingsError(
            f"provider {provider.name!r} needs an API key: set the environment variable "
            f"{provider.key_variable}, or name another one in api_key_env"
        )
    return provider.build(spec, api_key, transport)


def _check_endpoint(provider: Provider, spec: ModelSpec) -> None:
    url = spec.base_url
    if url is None:
        if provider.has_endpoint and provider.own_url is None:
            raise SettingsError(
                f"provider {provider.name!r} has no endpoint of its own: "
                "set base_url, for example http://127.0.0.1:8000/v1"
            )
        return
    if not provider.has_endpoint:
        raise SettingsError(f"provider {provider.name!r} has no endpoint: leave base_url out")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_sound_port(parts):
        raise SettingsError("base_url is no address: write it like http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise SettingsError(
            "base_url holds a user, password, query or fragment, which would be written into "
            f"manifests: keep scheme, host, port and path, and put the key into "
            f"{provider.key_variable}"
        )


def _check_effort(provider: Provider, spec: ModelSpec) -> None:
    effort = spec.reasoning_effort
    if effort is None or effort in provider.efforts:
        return
    if not provider.efforts:
        raise SettingsError(
            f"provider {provider.name!r} has no reasoning effort to set: leave reasoning_effort out"
        )
    raise SettingsError(
        f"reasoning_effort {effort!r} is no word of provider {provider.name!r}: "
        f"write one of {', '.join(provider.efforts)}"
    )


def _has_sound_port(parts: SplitResult) -> bool:
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


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

    own_url = PROVIDERS[spec.provider].own_url
    return build_openai_chat(
        spec,
        api_key=api_key or NO_KEY,
        base_url=spec.base_url or own_url or "",
        own_url=own_url,
        transport=transport,
    )


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        row.name: row
        for row in (
            Provider(
                name="rulebook",
                build=_build_rulebook,
                key_variable=None,
                key_required=False,
                own_url=None,
                has_endpoint=False,
                free=True,
            ),
            Provider(
                name="openai",
                build=_build_openai,
                key_variable="OPENAI_API_KEY",
                key_required=True,
                own_url=OPENAI_URL,
                has_endpoint=True,
                free=False,
                efforts=OPENAI_EFFORTS,
            ),
            Provider(
                name="openai_compatible",
                build=_build_openai,
                key_variable="OPENAI_COMPATIBLE_API_KEY",
                key_required=False,
                own_url=None,
                has_endpoint=True,
                free=False,
                efforts=OPENAI_EFFORTS,
            ),
        )
    }
)
