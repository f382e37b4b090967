"""Commands on scores: ``score`` and ``compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtester.cli.environment import data_folder, reports_folder
from backtester.cli.runs import DataDir, ReportsDir, RunName, whole
from backtester.errors import DataError, UsageError
from backtester.spellings import value_of_text
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.book.costs import Costs
    from backtester.book.policy import Policy
    from backtester.runs.folder import RunManifest

Text = str | None


def decimal(flag: str) -> Any:
    """Return an option that reads a number and says in plain words what does not fit."""

    def read(given: object) -> float:
        try:
            number: float = value_of_text(float, str(given))
        except ValueError as error:
            raise UsageError(f"{flag}: {error}") from error
        return number

    return read


def _number(flag: str, meaning: str) -> Any:
    return typer.Option(flag, parser=decimal(flag), metavar="NUMBER", help=meaning)


def _count(flag: str, meaning: str) -> Any:
    return typer.Option(flag, parser=whole(flag), metavar="INTEGER", help=meaning)


PolicyWord = Annotated[
    Text, typer.Option(help="long_only (default), long_short, equal_slots or map.")
]
Weights = Annotated[
    Text, typer.Option(help="For policy map: 'Buy=1,Overweight=.5,Underweight=0,Sell=-1'.")
]
HoldWord = Annotated[Text, typer.Option(help="What Hold does: carry (default) or flat.")]
Horizons = Annotated[
    Text, typer.Option(help="Sessions to the exit, with commas; the first one is the score's own.")
]
EntryRuleWord = Annotated[
    Text,
    typer.Option(
        "--entry-rule",
        "--entry",
        help="next_open, next_close, close or open; the run's by default.",
    ),
]
BenchmarkWord = Annotated[
    Text, typer.Option(help="Explicit benchmark, or none; the run's by default.")
]
From = Annotated[Text, typer.Option("--from", help="First day of decisions, YYYY-MM-DD.")]
To = Annotated[Text, typer.Option("--to", help="Last day of decisions, YYYY-MM-DD.")]
SnapshotName = Annotated[Text, typer.Option(help="Settle on another snapshot.")]
Fold = Annotated[Text, typer.Option(help="Length of walk-forward folds, such as 6M.")]
Slots = Annotated[int | None, _count("--slots", "Parts of the book; default one a ticker.")]
Cash = Annotated[
    float | None, _number("--start-cash", "Start cash of the book; 1000000 by default.")
]
Haircut = Annotated[
    float | None, _number("--haircut", "Taken off the last close of what stops trading, 0 to 1.")
]
RiskFree = Annotated[float | None, _number("--rf", "Risk-free rate a year, a fraction.")]
Commission = Annotated[
    float | None, _number("--commission-bps", "Commission, bps of notional; 1 by default.")
]
PerShare = Annotated[float | None, _number("--commission-per-share", "Commission a share.")]
Minimum = Annotated[float | None, _number("--commission-minimum", "Least commission an order.")]
Slippage = Annotated[float | None, _number("--slippage-bps", "Worse price, bps; 5 by default.")]
Cap = Annotated[
    float | None, _number("--participation-cap", "Most of a bar's volume an order may take.")
]
Impact = Annotated[
    float | None, _number("--impact-bps", "Worse price of an order as large as the volume, bps.")
]
Borrow = Annotated[float | None, _number("--borrow-bps-year", "Paid on short positions a year.")]
CashRate = Annotated[float | None, _number("--cash-rate", "Interest on cash a year, a fraction.")]
Rebalance = Annotated[Text, typer.Option(help="on_change (default) or always.")]
Placebo = Annotated[
    int | None, _count("--placebo", "Random books to compare with; 200 by default, 0 for none.")
]
Seed = Annotated[int | None, _count("--seed", "Of everything drawn; 0 by default.")]
ChargeModels = Annotated[
    bool,
    typer.Option(
        "--charge-model-cost",
        help="Take the models' bill out of the book: each decision's dollars, from its session on.",
    ),
]
WholeShares = Annotated[bool, typer.Option("--whole-shares", help="Trade no parts of a share.")]
Again = Annotated[bool, typer.Option("--again", help="Make the score also where it is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
By = Annotated[
    Text, typer.Option("--by", help="Split figures by ticker, month, rating or fold; with commas.")
]
_SIDE_HELP = "Run id, a part of it, or 'latest'; after a colon, a score of it or a part of its id."

_COSTS = (
    "commission_bps",
    "commission_per_share",
    "commission_minimum",
    "slippage_bps",
    "participation_cap",
    "impact_bps",
    "borrow_bps_year",
    "cash_rate",
)
_OF_THE_BOOK = frozenset({"policy", "costs", "slots", "start_cash", "rebalance", "fractional"})


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("score")(score)
    app.command("compare")(compare)


def score(
    context: typer.Context,
    name: RunName,
    policy: PolicyWord = None,
    weights: Weights = None,
    hold: HoldWord = None,
    horizon: Horizons = None,
    entry_rule: EntryRuleWord = None,
    benchmark: BenchmarkWord = None,
    first: From = None,
    last: To = None,
    snapshot: SnapshotName = None,
    fold: Fold = None,
    slots: Slots = None,
    start_cash: Cash = None,
    haircut: Haircut = None,
    rf: RiskFree = None,
    commission_bps: Commission = None,
    commission_per_share: PerShare = None,
    commission_minimum: Minimum = None,
    slippage_bps: Slippage = None,
    participation_cap: Cap = None,
    impact_bps: Impact = None,
    borrow_bps_year: Borrow = None,
    cash_rate: CashRate = None,
    rebalance: Rebalance = None,
    whole_shares: WholeShares = False,
    placebo: Placebo = None,
    seed: Seed = None,
    charge_model_cost: ChargeModels = False,
    again: Again = False,
    by: By = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Score a run's stored decisions under other rules; no model is asked."""
    _score(dict(context.params))


def _score(asked: dict[str, Any]) -> None:
    from backtester.cli.render import say
    from backtester.cli.render_parts import scopes_of
    from backtester.cli.render_scores import show_revisions, show_score_table, show_scores
    from backtester.rescore import rescore
    from backtester.runs.folder import find_run

    changes = _changes(asked)
    scopes = scopes_of(asked["by"]) if asked["by"] is not None else ()
    done = rescore(
        find_run(reports_folder(asked["reports_dir"]), asked["name"]),
        data_folder(asked["data_dir"]),
        changes,
        snapshot=asked["snapshot"],
        again=asked["again"],
        book_required=bool(_OF_THE_BOOK & set(changes)) or asked["charge_model_cost"],
        waiting=lambda line: typer.echo(line.partition(":")[0] + ": waiting for it", err=True),
    )
    label = f" ({done.label})" if done.label else ""
    say(printable(f"score {done.score_id} of run {done.run_id}{label}: 0 model calls"))
    if not done.new:
        say("it was there already; --again makes it anew")
    show_revisions(done.revisions)
    typer.echo("")
    show_scores(done.database, done.run_id, score_id=done.score_id, scopes=scopes)
    typer.echo("")
    show_score_table(done.database, done.run_id)
    for line in (*done.said, *done.left_out[1:]):
        typer.echo(printable(line), err=True)
    if done.left_out:
        raise DataError(f"the score is stored; not in the database: {done.left_out[0]}")


def _changes(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the definition that the command line changes."""
    changes: dict[str, Any] = {}
    for option, field in (
        ("entry_rule", "entry_rule"),
        ("fold", "fold"),
        ("slots", "slots"),
        ("start_cash", "start_cash"),
        ("haircut", "haircut"),
        ("rf", "rf_annual"),
        ("rebalance", "rebalance"),
        ("placebo", "placebo_draws"),
        ("seed", "seed"),
    ):
        if asked[option] is not None:
            changes[field] = asked[option]
    for option in ("first", "last"):
        if asked[option] is not None:
            changes[option] = _day(asked[option], "--from" if option == "first" else "--to")
    if asked["benchmark"] is not None:
        changes["benchmark"] = _benchmark(asked["benchmark"])
    if asked["whole_shares"]:
        changes["fractional"] = False
    if asked["charge_model_cost"]:
        changes["charge_model_cost"] = True
    changes |= _horizons(asked["horizon"])
    if any(asked[word] is not None for word in ("policy", "weights", "hold")):
        changes["policy"] = _policy(asked)
    if any(asked[word] is not None for word in _COSTS):
        changes["costs"] = _costs(asked)
    return changes


def _horizons(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = [value_of_text(int, word.strip()) for word in text.split(",") if word.strip()]
    except ValueError as error:
        raise UsageError(f"--horizon: {error}") from error
    if not found or not all(1 <= horizon <= 1000 for horizon in found):
        raise UsageError(
            f"--horizon: write whole numbers from 1 to 1000, with commas, not {text!r}"
        )
    return {"horizon": found[0], "horizons": tuple(found)}


def _day(text: str, flag: str) -> Any:
    from backtester import spellings

    try:
        return spellings.day(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def _benchmark(text: str) -> str:
    from backtester import spellings

    try:
        return spellings.benchmark(text)
    except ValueError as error:
        raise UsageError(f"--benchmark: {error}") from error


def _policy(asked: dict[str, Any]) -> Policy:
    from backtester.book.policy import policy_named

    weights = None if asked["weights"] is None else _weights(asked["weights"])
    name = asked["policy"] or ("map" if weights is not None else "long_only")
    return policy_named(name, weights=weights, hold=asked["hold"] or "carry")


def _weights(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair in text.split(","):
        rating, equals, weight = pair.partition("=")
        try:
            if not equals:
                raise ValueError(f"{pair.strip()!r} is no RATING=WEIGHT")
            name = rating.strip().capitalize()
            if name in found:
                raise ValueError(f"{name} is given twice: keep one of its weights")
            found[name] = value_of_text(float, weight.strip())
        except ValueError as error:
            raise UsageError(f"--weights: {error}") from error
    return found


def _costs(asked: dict[str, Any]) -> Costs:
    """Return the costs of a run's own score, with those that are named in their place."""
    from dataclasses import replace

    from backtester.score.definition import DEFAULT_COSTS

    return replace(DEFAULT_COSTS, **{w: asked[w] for w in _COSTS if asked[w] is not None})


def compare(
    first: Annotated[str, typer.Argument(metavar="RUN[:SCORE]", help=_SIDE_HELP)],
    second: Annotated[str, typer.Argument(metavar="RUN[:SCORE]", help="The other one.")],
    as_json: AsJson = False,
    reports_dir: ReportsDir = None,
) -> None:
    """Compare two runs, or two scores: what they differ in, and what of them can be paired."""
    from backtester.cli.render_compare import comparison_document, show_comparison
    from backtester.runs.folder import DATABASE_NAME

    reports = reports_folder(reports_dir)
    database: Path = reports / DATABASE_NAME
    one, other = (_side(reports, database, words) for words in (first, second))
    if (one[0].run_id, one[1]) == (other[0].run_id, other[1]):
        raise UsageError(
            f"{first!r} and {second!r} are the same score of the same run: name two, such as "
            f"{first.partition(':')[0]} and {first.partition(':')[0]}:SCORE"
        )
    document = comparison_document(database, (one[0], other[0]), (one[1], other[1]))
    if as_json:
        typer.echo(json.dumps(document, indent=2, sort_keys=True, default=str))
        return
    show_comparison(document)


def _side(reports: Path, database: Path, words: str) -> tuple[RunManifest, str]:
    """Return the run and the score that a side of a comparison names."""
    from backtester.runs.folder import find_run
    from backtester.score.definition import DEFAULT_SCORE
    from backtester.store.scores import score_named

    name, _, score_words = words.partition(":")
    manifest = find_run(reports, name).read_manifest()
    if not score_words:
        return manifest, DEFAULT_SCORE
    return manifest, score_named(database, manifest.run_id, score_words)
