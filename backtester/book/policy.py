"""What a rating is worth: the weight that each of the five gives a ticker's slot of the book.

A policy is data: five weights, None where a rating leaves the position as it is. It knows neither
prices nor costs; `book` turns its weights into orders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from backtester.errors import DataError, UsageError
from backtester.records import RATINGS

PolicyName = Literal["long_only", "long_short", "equal_slots", "map"]
HoldRule = Literal["carry", "flat"]

HOLD = "Hold"
# Hold is not in the table: it carries or goes flat, whatever the policy.
_WEIGHTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "long_only": {"Sell": 0.0, "Underweight": 0.25, "Overweight": 0.75, "Buy": 1.0},
        "long_short": {"Sell": -1.0, "Underweight": -0.5, "Overweight": 0.5, "Buy": 1.0},
        # In or out: a slot is full for both words of approval and empty for both of the other kind.
        "equal_slots": {"Sell": 0.0, "Underweight": 0.0, "Overweight": 1.0, "Buy": 1.0},
    }
)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Say which part of its slot each rating gives a ticker.

    Attributes:
        name: One of `PolicyName`.
        weights: Rating -> fraction of the slot, -1 to 1, below zero for a short position; None
            leaves the position as it is.
        hold: What Hold does: ``carry`` leaves the position, ``flat`` closes it. A map that has a
            weight of its own for Hold keeps it.
    """

    name: str
    weights: Mapping[str, float | None]
    hold: HoldRule = "carry"

    def weight_of(self, rating: str | None) -> float | None:
        """Return the fraction of the slot, or None where the position stays as it is.

        Args:
            rating: One of the five, or None where a decision gave none.

        Raises:
            DataError: For a word that is no rating.
        """
        if rating is None:
            return None
        try:
            return self.weights[rating]
        except KeyError:
            raise DataError(f"{rating!r} is no rating: write one of {', '.join(RATINGS)}") from None


def policy_named(
    name: str, *, weights: Mapping[str, float] | None = None, hold: HoldRule = "carry"
) -> Policy:
    """Return a policy by name.

    ``long_only``: Buy 1, Overweight 0.75, Underweight 0.25, Sell 0. ``long_short``: 1, 0.5, -0.5,
    -1. ``equal_slots``: Buy and Overweight 1, Underweight and Sell 0. ``map``: the caller's
    weights. Hold carries the position in all of them, unless told to go flat.

    Args:
        name: One of the four.
        weights: For ``map`` alone: a weight for each rating; Hold may be left out.
        hold: ``carry`` or ``flat``.

    Raises:
        UsageError: For another name, a map that is not whole, or a weight outside -1 to 1.
    """
    if name not in get_args(PolicyName):
        raise UsageError(
            f"policy {name!r} is not known: write one of {', '.join(get_args(PolicyName))}"
        )
    if hold not in get_args(HoldRule):
        raise UsageError(f"hold {hold!r} is not known: write carry or flat")
    if name != "map":
        if weights is not None:
            raise UsageError(f"policy {name} has weights of its own: name it map to give others")
        return _policy(name, _WEIGHTS[name], hold)
    return _policy(name, _own(weights), hold)


def _policy(name: str, weights: Mapping[str, float], hold: HoldRule) -> Policy:
    at_rest = None if hold == "carry" else 0.0
    whole = {rating: weights.get(rating, at_rest) for rating in RATINGS}
    return Policy(name=name, weights=MappingProxyType(whole), hold=hold)


def _own(weights: Mapping[str, float] | None) -> Mapping[str, float]:
    """Check a user's weights."""
    given = weights or {}
    strange = sorted(set(given) - set(RATINGS))
    if strange:
        raise UsageError(
            f"policy map: {strange[0]!r} is no rating: write one of {', '.join(RATINGS)}"
        )
    missing = [rating for rating in RATINGS if rating not in given and rating != HOLD]
    if missing:
        raise UsageError(f"policy map: no weight for {', '.join(missing)}: give each rating one")
    for rating, weight in given.items():
        if not (math.isfinite(weight) and -1.0 <= weight <= 1.0):
            raise UsageError(f"policy map: the weight {weight} of {rating} is not from -1 to 1")
    return {rating: float(weight) for rating, weight in given.items()}
