"""What a score is called: what it differs by from the run's own, in the words of the flags.

A label is exact: two scores of a run have equal labels only where their definitions are equal. It
is made of documents (`ScoreDefinition.document`), so stored scores of any age have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

OWN: Final = "the run's own"
"""Label of the run's own score."""

_SLUG_LENGTH: Final = 40
_SHORT_ID: Final = 8
_COSTS: Final[Mapping[str, str]] = {
    "commission_bps": "commission {} bps",
    "commission_per_share": "commission {} a share",
    "commission_minimum": "commission at least {}",
    "slippage_bps": "slippage {} bps",
    "participation_cap": "participation cap {}",
    "impact_bps": "impact {} bps",
    "borrow_bps_year": "borrow {} bps a year",
    "cash_rate": "cash rate {} a year",
}


def score_label(
    document: Mapping[str, Any], own: Mapping[str, Any] | None, *, snapshot: str | None = None
) -> str:
    """Return what a score differs by from the run's own.

    Args:
        document: Of the score.
        own: Of the run's own score; None where there is none: then all that is not the default is
            named.
        snapshot: Name of the score's snapshot, to be shown beside its id.
    """
    return ", ".join(_parts(document, own, snapshot)) or OWN


def score_slug(document: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Return the readable front of a score's id: the label in letters, digits, points and dashes.

    It may be cut short: what follows it in an id tells scores apart.
    """
    found = ""
    for part in _parts(document, own, None):
        # A map's weights and further horizons are too long for a name.
        words = re.sub(r"^map .*", "map", re.sub(r"^h=(\d+).*", r"h\1", part))
        longer = f"{found}-{re.sub(r'[^a-z0-9.]+', '-', words.lower())}".strip("-.")
        if len(longer) > _SLUG_LENGTH:
            return found or longer[:_SLUG_LENGTH].strip("-.")
        found = longer
    return found or "own"


def cost_words(costs: Mapping[str, float | None]) -> str:
    """Return in words what trading costs, or that it costs nothing."""
    charged = [_cost(name, value) for name, value in costs.items() if value]
    return ", ".join(charged) or "no costs"


def _parts(
    document: Mapping[str, Any], own: Mapping[str, Any] | None, snapshot: str | None
) -> Iterator[str]:
    beside = _defaults(document) if own is None else own
    if document["snapshot_id"] != beside["snapshot_id"]:
        # The name alone would not tell a snapshot from the one it replaced.
        short = document["snapshot_id"][:_SHORT_ID]
        document = {**document, "snapshot_id": f"{snapshot} {short}" if snapshot else short}
    for words in _WORDS:
        yield from words(document, beside)


def _defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a score without the run's own beside it is told from."""
    policy = {"name": "long_only", "hold": "carry", "weights": document["policy"]["weights"]}
    costs = {name: None if name == "participation_cap" else 0.0 for name in document["costs"]}
    plain = {
        "policy": policy,
        "costs": costs,
        "horizon": None,
        "entry_rule": None,
        "slots": None,
        "rebalance": "on_change",
        "fractional": True,
        "charge_model_cost": False,
        "haircut": 0.0,
        "rf_annual": 0.0,
        "fold": None,
    }
    return {**document, **plain}


# -------------------------------------------------------------------------------- words of fields

_Words = Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[str]]


def _changed(name: str, text: str, show: Callable[[Any], str] = str) -> _Words:
    """Return the words of a field of its own."""

    def words(document: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
        if document[name] != own[name]:
            yield text.format(show(document[name]))

    return words


def _policy(document: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    policy, before = document["policy"], own["policy"]
    weights = {name: value for name, value in policy["weights"].items() if value is not None}
    if policy["name"] == "map":
        if policy["weights"] != before["weights"] or before["name"] != "map":
            yield "map " + ",".join(f"{name}={exact(weights[name])}" for name in sorted(weights))
    elif policy["name"] != before["name"]:
        yield str(policy["name"])
    if policy["hold"] != before["hold"]:
        yield f"hold {policy['hold']}"


def _horizons(document: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    names = ("horizon", "horizons")
    if any(document[name] != own[name] for name in names):
        first = document["horizon"]
        if document["horizons"] == own["horizons"] and own["horizon"] is not None:
            yield f"h={first} of {','.join(map(str, own['horizons']))}"
            return
        others = [horizon for horizon in document["horizons"] if horizon != first]
        yield "h=" + ",".join(map(str, (first, *others)))


def _costs(document: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    costs, before = document["costs"], own["costs"]
    if costs != before and not any(costs.values()):
        yield "no costs"
        return
    for name, value in costs.items():
        if value != before.get(name):
            yield _cost(name, value)


def _cost(name: str, value: float | None) -> str:
    shown = "none" if value is None else exact(value)
    return _COSTS.get(name, f"{name} {{}}").format(shown)


def exact(value: float) -> str:
    """Return the shortest text that reads back as this very number."""
    short = f"{value:.15g}"
    return short if float(short) == value else repr(value)


def _benchmark(value: str | None) -> str:
    return "of the market" if value is None else value


def _map(value: Mapping[str, str]) -> str:
    return " ".join(f"{suffix}={symbol}" for suffix, symbol in sorted(value.items())) or "none"


# In the order of a label.
_WORDS: Final[tuple[_Words, ...]] = (
    _policy,
    _horizons,
    _changed("entry_rule", "entry {}"),
    _costs,
    _changed(
        "charge_model_cost", "model cost {}", lambda value: "charged" if value else "not charged"
    ),
    _changed("slots", "slots {}", lambda value: str(value or "one a ticker")),
    _changed("rebalance", "rebalance {}"),
    _changed("fractional", "{}", lambda value: "parts of shares" if value else "whole shares"),
    _changed("start_cash", "start cash {}", exact),
    _changed("first", "from {}"),
    _changed("last", "to {}"),
    _changed("benchmark", "benchmark {}", _benchmark),
    _changed("benchmark_map", "benchmark map {}", _map),
    _changed("snapshot_id", "snapshot {}"),
    _changed("haircut", "haircut {}", exact),
    _changed("rf_annual", "rf {}", exact),
    _changed("fold", "fold {}", lambda value: str(value or "none")),
    _changed("placebo_draws", "placebo {}"),
    _changed("seed", "seed {}"),
    _changed("decision_time", "decided at the {}"),
    _changed("universe", "universe {}", " ".join),
)
