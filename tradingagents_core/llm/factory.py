"""The one place where chat models are built: `create_model`, by a row of the provider table.

What is wrong with a spec is said before anything starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.capabilities import Transport
from tradingagents_core.llm.logs import keep_out_of_logs
from tradingagents_core.llm.providers import PROVIDERS, Provider
from tradingagents_core.settings import ModelSpec

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

# Shorter keys are dummies, and may stand in an address by chance.
LEAST_KEY = 8


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
        SettingsError: For an unknown provider, a missing key (naming its variable), a package
            that is not installed, or an endpoint that is missing, malformed or holds a
            credential, or a reasoning effort that the provider does not know.
    """
    provider = provider_of(spec)
    _check_endpoint(provider, spec)
    if api_key and len(api_key) >= LEAST_KEY and api_key in (spec.base_url or ""):
        raise SettingsError(
            "base_url holds the API key, which would be written into manifests: "
            f"put the key into {provider.key_variable} alone"
        )
    if provider.key_required and not api_key and transport == "open":
        raise SettingsError(
            f"provider {provider.name!r} needs an API key: set the environment variable "
            f"{' or '.join(provider.key_variables)}, or name another one in api_key_env"
        )
    if provider.key_required and spec.model == ModelSpec.model:
        raise SettingsError(
            f"provider {provider.name!r} has no model {spec.model!r}: name one of its own, for "
            "example with --model ('backtester models' lists them)"
        )
    if api_key:
        keep_out_of_logs(api_key)
    try:
        return provider.build(spec, api_key, transport)
    except ModuleNotFoundError as error:
        if provider.extra is None:
            raise
        raise SettingsError(
            f"provider {provider.name!r} needs the package {provider.package}: "
            f"pip install 'tradingagents-backtester[{provider.extra}]'"
        ) from error


def provider_of(spec: ModelSpec) -> Provider:
    """Return the row of a spec's provider.

    Raises:
        SettingsError: There is none of that name.
    """
    provider = PROVIDERS.get(spec.provider)
    if provider is None:
        raise SettingsError(
            f"unknown provider {spec.provider!r}: write one of {', '.join(PROVIDERS)}"
        )
    return provider


def _check_endpoint(provider: Provider, spec: ModelSpec) -> None:
    url = spec.base_url
    if url is None:
        if provider.has_endpoint and provider.own_url is None:
            variable = f" or the environment variable {provider.url_variable}"
            raise SettingsError(
                f"provider {provider.name!r} has no endpoint of its own: "
                f"set base_url{variable if provider.url_variable else ''}, "
                "for example http://127.0.0.1:8000/v1"
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


def _has_sound_port(parts: SplitResult) -> bool:
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False
