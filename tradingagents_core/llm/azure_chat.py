"""OpenAI's models in Azure, recorded and replayed: chat completions of a deployment.

`AzureChatOpenAI` builds the request body; `posting` sends it. A model is named by its deployment,
which is therefore in the key, and so is the version of the interface. Whose resource serves it is
not, where ``endpoint_alias`` gives it a name.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

import httpx2
from langchain_core.language_models import LanguageModelInput
from langchain_openai import AzureChatOpenAI
from pydantic import Field

from tradingagents_core.errors import SettingsError
from tradingagents_core.llm.capabilities import (
    NO_KEY,
    Transport,
    effort_of,
    temperature_of,
)
from tradingagents_core.llm.openai_bodies import response_format, secret_of
from tradingagents_core.llm.patience import Patience
from tradingagents_core.llm.posting import Door, RefusingTransport, post, recording_fields
from tradingagents_core.llm.replaying import LiveReply, LiveRequest, ReplayingModel
from tradingagents_core.llm.replies import reply_from_chat_completion
from tradingagents_core.settings import ModelSpec

# The newest version that Microsoft calls stable; a newer one can be set.
API_VERSION = "2024-10-21"

# Fields that ask for a stream, and the query, which is no part of the body.
_UNSENT = frozenset({"stream", "stream_options", "extra_query"})


class ReplayingAzureChatOpenAI(ReplayingModel, AzureChatOpenAI):
    """Call a deployment in Azure behind the recording layer.

    Attributes:
        patience: How long one call is tried.
    """

    patience: Patience = Field(default=Patience(max_retries=0, budget_s=0.0), exclude=True)

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        body: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        if isinstance(body.get("response_format"), type):
            body["response_format"] = response_format(body["response_format"])
        # Part of the address, and may change an answer.
        return body | {"extra_query": {"api-version": self.openai_api_version}}

    def _live_reply(self, request: LiveRequest) -> LiveReply:
        body = {name: value for name, value in request.body.items() if name not in _UNSENT}
        return post(self._door(), body, reply_from_chat_completion, self.patience, request.meter)

    def _door(self) -> Door:
        secret = self._secret()
        resource = str(self.azure_endpoint).rstrip("/")
        deployment = quote(str(self.deployment_name), safe="")
        version = quote(str(self.openai_api_version), safe="")
        return Door(
            url=f"{resource}/openai/deployments/{deployment}/chat/completions?api-version={version}",
            headers={"api-key": secret or NO_KEY},
            secrets=(secret or "",),
            timeout_s=cast("float", self.request_timeout),
            transport=self.transport,
        )

    def _secret(self) -> str | None:
        return secret_of(self.openai_api_key)


def build_azure_chat(
    spec: ModelSpec, api_key: str | None, transport: Transport
) -> ReplayingAzureChatOpenAI:
    """Build the model of a spec, whose ``model`` is the name of a deployment.

    Args:
        spec: What to build.
        api_key: Key; a replay needs none.
        transport: ``refuse`` for replays.

    Raises:
        SettingsError: There is no endpoint.
    """
    if spec.base_url is None:
        raise SettingsError(
            "provider 'azure' has no endpoint of its own: set base_url or the environment "
            "variable AZURE_OPENAI_ENDPOINT to your resource, like "
            "https://my-resource.openai.azure.com"
        )
    settings: dict[str, Any] = {
        **recording_fields(spec, transport, own_url=None),
        **effort_of(spec),
        "azure_deployment": spec.model,
        "model": spec.model,
        # All that the library would take from the environment is handed over.
        "api_key": api_key or NO_KEY,
        "azure_endpoint": spec.base_url,
        "api_version": spec.api_version or API_VERSION,
        "azure_ad_token": None,
        "openai_api_base": None,
        "openai_api_type": "azure",
        "timeout": spec.timeout_s,
        "max_retries": 0,
        "temperature": temperature_of(spec),
        "use_responses_api": False,
        # No request of ours goes through the library's own clients.
        "http_client": httpx2.Client(transport=RefusingTransport()),
        "http_async_client": httpx2.AsyncClient(transport=RefusingTransport()),
    }
    if spec.max_tokens is not None:
        settings["max_tokens"] = spec.max_tokens
    return ReplayingAzureChatOpenAI(**settings)
