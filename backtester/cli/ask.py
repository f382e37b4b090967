"""Questions with defaults, for a person at a terminal, and the answers of the last time.

Answers are kept in the user's own configuration folder (``~/.config/backtester`` on Linux), as
defaults of the next questions and for nothing else: a command with its arguments never reads them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import typer

from backtester import spellings
from backtester.errors import DataError, UsageError
from backtester.spellings import shown

if TYPE_CHECKING:
    from backtester.snapshots.snapshot import Snapshot
    from tradingagents_core.llm.providers import Provider

Answers = dict[str, str]
DEPTHS: Final = {"shallow": 1, "medium": 3, "deep": 5}
_MODELS: Final = {"rulebook": "rulebook-1", "openai": "gpt-5.4-mini"}
FIELDS: Final = {
    "benchmark": "benchmark",
    "analysts": "analysts",
    "depth": "max_debate_rounds",
    "provider": "provider",
    "base_url": "base_url",
    "quick_model": "quick_model",
    "deep_model": "deep_model",
    "language": "output_language",
}
"""The setting that each answer is for."""

_FLAGS: Final = {
    "benchmark": "--benchmark",
    "analysts": "--analysts",
    "depth": "--depth",
    "provider": "--provider",
    "base_url": "--base-url",
    "quick_model": "--quick-model",
    "deep_model": "--deep-model",
    "language": "--language",
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """Ask for one thing.

    Attributes:
        key: Under which name the answer is kept.
        text: What the person reads.
        default: Taken for an empty answer; empty where there is none.
        check: Raises `UsageError` or `DataError` for an answer that cannot be used.
    """

    key: str
    text: str
    default: str
    check: Callable[[str], object]

    def put(self) -> str:
        """Ask until the answer can be used."""

        def used(answer: str) -> str:
            answer = answer.strip()
            try:
                self.check(answer)
            except (UsageError, DataError, ValueError) as error:
                raise typer.BadParameter(str(error)) from error
            return answer

        answer: str = typer.prompt(
            self.text, default=self.default or None, value_proc=used, err=True
        )
        return answer


def answers_path() -> Path:
    """Return the file of the last answers."""
    return Path(typer.get_app_dir("backtester")) / "last_answers.json"


def recall() -> Answers:
    """Return the last answers; none where there is no file, or none that reads."""
    try:
        known = json.loads(answers_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {key: value for key, value in known.items() if isinstance(value, str)}


def remember(answers: Answers) -> None:
    """Keep answers for the next time; a folder that cannot be written only costs that comfort."""
    # An address may carry a password, which no file of ours may hold.
    kept = {key: value for key, value in answers.items() if "@" not in value and "?" not in value}
    path = answers_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        typer.echo(f"note: answers are not kept, {path} cannot be written: {error}", err=True)


def ask(given: Answers, last: Answers, snapshot: Snapshot, *, known: Mapping[str, str]) -> Answers:
    """Ask for everything that was not given and that no setting says already.

    Args:
        given: Answers from the command line.
        last: Those of the last time.
        snapshot: What is decided on.
        known: What settings say, by the name of the answer.
    """
    answers = dict(given)

    def put(key: str, text: str, default: str, check: Callable[[str], object]) -> None:
        if key in answers:
            check(answers[key])
        elif key not in known:
            answers[key] = Question(key=key, text=text, default=default, check=check).put()

    ticker = last.get("ticker", snapshot.instruments()[0])
    put("ticker", f"Ticker (snapshot {snapshot.name})", ticker, lambda text: _held(text, snapshot))
    day = last.get("date", snapshot.end.isoformat())
    put("date", "Date, YYYY-MM-DD", day, lambda text: _inside(text, snapshot))
    if not _has_benchmark(answers["ticker"], snapshot):
        index = next((name for name in snapshot.instruments() if name.startswith("^")), "none")
        benchmark = last.get("benchmark", index)
        put("benchmark", "Benchmark, or 'none'", benchmark, lambda text: _measures(text, snapshot))
    put("analysts", "Analysts, in order", last.get("analysts", _analysts()), _some_analysts)
    depth = last.get("depth", "shallow")
    put("depth", f"Depth of the debates ({', '.join(DEPTHS)})", depth, rounds_of)
    put("provider", f"Provider ({', '.join(_providers())})", last.get("provider", "rulebook"), _row)
    _ask_for_models(answers, known, last, put)
    put("language", "Language of reports", last.get("language", "English"), _said)
    return answers


def _ask_for_models(
    answers: Answers,
    known: Mapping[str, str],
    last: Answers,
    put: Callable[[str, str, str, Callable[[str], object]], None],
) -> None:
    """Ask for endpoint and models, as far as the provider leaves a choice."""
    provider = answers.get("provider") or known["provider"]
    same = last if last.get("provider") == provider else {}
    if provider == "rulebook":
        unsaid = {"quick_model", "deep_model"} - known.keys() if "provider" in answers else ()
        answers.update(dict.fromkeys(sorted(unsaid), _MODELS[provider]))
        return
    if _row(provider).own_url is None:
        put(
            "base_url", "Address, such as http://127.0.0.1:8000/v1", same.get("base_url", ""), _said
        )
    usual = _MODELS.get(provider, "")
    put("quick_model", "Model for quick thinking", same.get("quick_model", usual), _said)
    deep = same.get("deep_model", answers.get("quick_model") or known["quick_model"])
    put("deep_model", "Model for deep thinking", deep, _said)


def command_of(answers: Answers, *, others: Sequence[str] = ()) -> str:
    """Return the command that gives the same answers without a question.

    Args:
        answers: What was asked.
        others: Options that were given.
    """
    words = ["backtester", "analyze", answers["ticker"], answers["date"]]
    for key, flag in _FLAGS.items():
        if key in answers:
            words += [flag, answers[key]]
    return shlex.join([*words, *others])


def rounds_of(depth: str) -> int:
    """Return the debate rounds of a depth.

    Raises:
        UsageError: For another word.
    """
    if depth not in DEPTHS:
        raise UsageError(f"depth {shown(depth)} is none: write {', '.join(DEPTHS)}")
    return DEPTHS[depth]


def day_of(text: str) -> date:
    """Return a date.

    Raises:
        UsageError: It does not read.
    """
    try:
        return cast("date", spellings.day(text))
    except ValueError as error:
        raise UsageError(f"DATE: {error}") from error


def _held(ticker: str, snapshot: Snapshot) -> None:
    try:
        symbol = spellings.symbol(ticker)
    except ValueError as error:
        raise UsageError(str(error)) from error
    days = (snapshot.start, snapshot.end)
    if symbol not in snapshot.instruments() and not any(snapshot.resolve(symbol, d) for d in days):
        raise DataError(f"snapshot {snapshot.name} holds {', '.join(snapshot.instruments())}")


def _measures(benchmark: str, snapshot: Snapshot) -> None:
    if benchmark.lower() != spellings.NO_BENCHMARK:
        _held(benchmark, snapshot)


def _has_benchmark(ticker: str, snapshot: Snapshot) -> bool:
    """Say whether the market's own benchmark is in the snapshot; else one has to be named."""
    from backtester.settlement.broker import benchmark_for

    symbol = benchmark_for(spellings.symbol(ticker), None).symbol
    return symbol is None or symbol in snapshot.instruments()


def _inside(text: str, snapshot: Snapshot) -> None:
    if not snapshot.start <= day_of(text) <= snapshot.end:
        raise DataError(f"the snapshot covers {snapshot.start} to {snapshot.end}")


def _analysts() -> str:
    from tradingagents_core.settings import ALL_ANALYSTS

    return ",".join(ALL_ANALYSTS)


def _some_analysts(text: str) -> None:
    from tradingagents_core.errors import SettingsError
    from tradingagents_core.topology import chosen_analysts

    try:
        chosen_analysts([word.strip() for word in text.split(",") if word.strip()])
    except SettingsError as error:
        raise UsageError(str(error)) from error


def _providers() -> tuple[str, ...]:
    from tradingagents_core.llm.providers import PROVIDERS

    return tuple(PROVIDERS)


def _row(provider: str) -> Provider:
    from tradingagents_core.llm.providers import PROVIDERS

    if provider not in PROVIDERS:
        raise UsageError(f"provider {shown(provider)} is none: write {', '.join(PROVIDERS)}")
    return PROVIDERS[provider]


def _said(text: str) -> None:
    if not text:
        raise UsageError("an answer is needed")
