"""Which decisions a model may have known the outcome of, because it was trained after them.

A decision whose session lies on or before the knowledge cutoff of one of its models is labelled
``before``: the model may have read what followed. Where that is not so, but a model's cutoff is
unknown, the label is ``unknown``; else it is ``after``. Models that are no language models and run
in this process, such as the rulebook, were trained on nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, get_args

from backtester.config import RunConfig, Tier
from backtester.loading import catalogue_of
from backtester.spending.tariff import is_paid

Knowledge = Literal["before", "after", "unknown"]
KNOWLEDGE: tuple[Knowledge, ...] = get_args(Knowledge)


@dataclass(frozen=True, kw_only=True)
class Training:
    """Say up to when a model's training data go.

    Attributes:
        model: Its name.
        cutoff: Last date, or None where nobody knows it.
        as_of: Date on which that was looked up, or None.
        source: Where, or None.
    """

    model: str
    cutoff: date | None
    as_of: str | None = None
    source: str | None = None

    def words(self, sessions: Sequence[date]) -> str:
        """Say how many of the sessions of decisions lie within the training data."""
        if self.cutoff is None:
            return f"knowledge cutoff of {self.model} unknown: it may know what it is asked about"
        within = sum(session <= self.cutoff for session in sessions)
        share = "all" if within == len(sessions) > 0 else f"{within} of"
        known = ", ".join(
            word for word in (self.as_of and f"as of {self.as_of}", self._sourced()) if word
        )
        return (
            f"{share} {len(sessions)} decisions lie on or before the knowledge cutoff "
            f"{self.cutoff} of {self.model}" + (f" ({known})" if known else "")
        )

    def _sourced(self) -> str:
        return f"source {self.source}" if self.source else ""


def model_words(config: RunConfig, tier: Tier) -> dict[str, str | None]:
    """Return what a manifest says of the model of a tier.

    Raises:
        UsageError: The user's catalogue cannot be read; SettingsError, where it has another form.
    """
    spec = config.model_spec(tier)
    facts = catalogue_of(config).find(spec.provider, spec.model)
    cutoff = facts.knowledge_cutoff if facts is not None else None
    return {
        "provider": spec.provider,
        "model": spec.model,
        "endpoint": spec.base_url,
        "knowledge_cutoff": cutoff.value.isoformat() if cutoff else None,
        "knowledge_as_of": cutoff.as_of.isoformat() if cutoff and cutoff.as_of else None,
        "knowledge_source": cutoff.source if cutoff else None,
    }


def trainings(models: Mapping[str, Mapping[str, Any]]) -> tuple[Training, ...]:
    """Return the training of each language model in a manifest's table of models, without repeats.

    A manifest that was written before cutoffs were recorded gives unknown ones.
    """
    found = [
        Training(
            model=f"{row['provider']}/{row['model']}",
            cutoff=date.fromisoformat(row["knowledge_cutoff"])
            if row.get("knowledge_cutoff")
            else None,
            as_of=row.get("knowledge_as_of"),
            source=row.get("knowledge_source"),
        )
        for _, row in sorted(models.items(), reverse=True)
        if is_paid(row["provider"])
    ]
    return tuple(dict.fromkeys(found))


def knowledge_of(session: date, known: Sequence[Training]) -> Knowledge:
    """Return the label of a decision."""
    cutoffs = [training.cutoff for training in known]
    if any(cutoff is not None and session <= cutoff for cutoff in cutoffs):
        return "before"
    return "unknown" if None in cutoffs else "after"
