"""The rulebook behind the recording layer, as the factory hands it out."""

from __future__ import annotations

from pydantic import Field

from tradingagents_core.llm.replaying import ReplayingModel
from tradingagents_core.llm.rulebook import RulebookChatModel


class ReplayingRulebook(ReplayingModel, RulebookChatModel):
    """Answer by the published rules, recorded and replayed like any other model."""

    provider: str = Field(default="rulebook", exclude=True)
    endpoint: str = Field(default="rulebook", exclude=True)
