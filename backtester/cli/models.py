"""Providers and models: the command ``models``, their addresses, and names that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from backtester.cli.environment import environment
from backtester.errors import UsageError
from backtester.spellings import shown
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.config import RunConfig, Tier
    from tradingagents_core.llm.catalogue import Catalogue, Figure, ModelFacts
    from tradingagents_core.llm.providers import Provider

_UNKNOWN = "unknown"
_OLLAMA_PORT = 11434
_SCRIPT = """\
The provider 'scripted' asks nobody: it says what a TOML file holds. Name the file with
  --provider scripted --model anything --set script=said.toml

# The first reply whose conditions all hold is said. Conditions, each of which may be left out:
#   node          who asks, such as "Market Analyst", "Trader" or "Reflector"
#   contains      text that the prompt holds
#   tool_answers  how many answers of tools the prompt holds; 0 is the first turn
# What is said:
#   text           the answer
#   tools          tools that are called, each with a name and its args
#   finish_reason  "stop" if left out; "length" is an answer that was cut
[[script]]
node = "Market Analyst"
tool_answers = 0
tools = [{ name = "get_indicators", args = { symbol = "AAPL" } }]

[[script]]
node = "Trader"
contains = "AAPL"
text = "I would hold."
finish_reason = "stop"

# Without conditions, at the end: the answer to all else.
[[script]]
text = "All is well. RATING: Overweight"
"""
_MORE_HELP = """\
A models file (the setting models_file of a run) is TOML, and its figures win; each of them may be
left out:

\b
[models.openai."gpt-4o"]
context = { tokens = 128000 }
cutoff = { date = 2023-10-01 }
price = { input = 2.5, output = 10.0, as_of = 2026-01-31, source = "..." }

Context is in tokens, a price in US dollars per million of them. 'backtester models scripted' shows
how a script is written.
"""
_ENDS = {"http": 80, "https": 443}


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("models", help=f"{getdoc(models)}\n\n{_MORE_HELP}")(models)


def models(
    provider: Annotated[
        str | None, typer.Argument(help="Provider whose models are listed; default all of them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    models_file: Annotated[
        Path | None, typer.Option("--models-file", help="TOML file whose figures win.")
    ] = None,
) -> None:
    """List providers and current models: context, knowledge cutoff and price, each with its date.

    A figure that nobody published, or on which lists differ, is unknown.
    """
    from backtester.loading import catalogue_with
    from tradingagents_core.llm.providers import PROVIDERS

    known = catalogue_with(models_file)
    owners = {owner for owner, _ in known.facts}
    if provider is not None and provider not in {*PROVIDERS, *owners}:
        raise UsageError(f"provider {shown(provider)} is none: write one of {', '.join(PROVIDERS)}")
    rows = [row for row in PROVIDERS.values() if provider in (None, row.name)]
    if as_json:
        typer.echo(json.dumps(_document(rows, known, provider), indent=2, sort_keys=True))
    elif provider is None:
        _print_providers(rows, known)
    elif provider == "scripted":
        typer.echo(_SCRIPT, nl=False)
    else:
        _print_models(provider, known)


# ------------------------------------------------------------------------------- before a run


def with_addresses(config: RunConfig) -> RunConfig:
    """Return a configuration with the addresses that neither flag nor file gave.

    They are those of the providers' variables, where these are set, and are written into the
    configuration, so that the run id says which endpoint was asked.
    """
    from tradingagents_core.llm.providers import PROVIDERS

    changes: dict[str, str] = {}
    for tier in _tiers():
        spec = config.model_spec(tier)
        address = None if spec.base_url else _address_of(spec.provider)
        if address is not None:
            shared = spec.provider == config.provider
            changes["base_url" if shared else f"{tier}_base_url"] = address
        row = PROVIDERS.get(spec.provider)
        version = environment().get(row.version_variable or "", "").strip() if row else ""
        if version and spec.api_version is None:
            changes["api_version"] = version
    return config.model_copy(update=changes) if changes else config


def tell_unknown_models(config: RunConfig, api_keys: Mapping[str, str]) -> None:
    """Say once of each model that is in no list that its price and cutoff are unknown.

    A replay asks no model, and says nothing; nor is anything said of a provider whose key is
    missing, for the error that follows is all that counts.
    """
    from backtester.loading import catalogue_of
    from tradingagents_core.llm.providers import PROVIDERS

    if config.mode == "replay":
        return
    known = catalogue_of(config)
    specs = {(spec.provider, spec.model) for spec in map(config.model_spec, _tiers())}
    for provider, model in sorted(specs):
        row = PROVIDERS.get(provider)
        if not api_keys and row is not None and row.key_required:
            continue
        if known.of(provider) and known.find(provider, model) is None:
            typer.echo(
                f"note: {printable(model)!r} is in no list of {provider}'s models ('backtester "
                f"models {provider}' shows it): its price and knowledge cutoff are unknown",
                err=True,
            )


def tell_unset_keys(config: RunConfig) -> None:
    """Say of each variable that a setting names for a key that it is not set.

    The provider's own variable does not stand in for it, so its models are asked without a key.
    """
    if config.mode == "replay":
        return
    for variable in dict.fromkeys(map(config.key_variable_of, _tiers())):
        if variable and not environment().get(variable, "").strip():
            typer.echo(
                f"note: {printable(variable)}, which a setting names for the API key, is not set: "
                "no key is sent",
                err=True,
            )


def _tiers() -> tuple[Tier, ...]:
    return ("quick", "deep")


def _address_of(provider: str) -> str | None:
    from tradingagents_core.llm.providers import PROVIDERS

    row = PROVIDERS.get(provider)
    if row is None:
        return None
    for variable in (row.url_variable, row.host_variable):
        given = environment().get(variable, "").strip() if variable else ""
        if given and variable == row.host_variable:
            return ollama_address(given)
        if given:
            bare = row.host_variable is not None and not urlsplit(given).path.strip("/")
            return f"{given.rstrip('/')}/v1" if bare else given
    return None


def ollama_address(host: str) -> str:
    """Return the base URL for a value of ``OLLAMA_HOST``, read as Ollama itself reads it.

    Scheme and port may be left out; a server that listens everywhere is asked on this machine.
    """
    scheme, separator, rest = host.rpartition("://")
    scheme, port = (scheme, _ENDS.get(scheme)) if separator else ("http", _OLLAMA_PORT)
    parts = urlsplit(f"{scheme}://{rest}")
    name = parts.hostname or "127.0.0.1"
    name = "127.0.0.1" if name in ("0.0.0.0", "::") else name
    name = f"[{name}]" if ":" in name else name
    try:
        port = parts.port or port
    except ValueError as error:
        raise UsageError(
            f"environment variable OLLAMA_HOST: {printable(host)!r} has no sound port: "
            "write it like 127.0.0.1:11434"
        ) from error
    return f"{scheme}://{name}:{port}{parts.path.rstrip('/')}/v1"


# --------------------------------------------------------------------------------------- tables


def _print_providers(rows: Sequence[Provider], known: Catalogue) -> None:
    headings = ("provider", "key", "address", "models")
    _print_columns(
        [headings]
        + [
            (row.name, _key_words(row), row.own_url or "", str(len(known.of(row.name))))
            for row in rows
        ]
    )
    typer.echo(
        "\n'backtester models PROVIDER' lists the models of one; addresses can be moved with"
    )
    typer.echo("base_url or the provider's variable, and keys are read from variables alone.")


def _key_words(row: Provider) -> str:
    if row.key_variable is None:
        return "none"
    held = any(environment().get(name, "").strip() for name in row.key_variables)
    state = "set" if held else "not set"
    return f"{row.key_variable} ({state if row.key_required else f'optional, {state}'})"


def _print_models(provider: str, known: Catalogue) -> None:
    facts = known.of(provider)
    if not facts:
        typer.echo(f"no list of the models of {provider}: prices and cutoffs are unknown")
        return
    headings = ("model", "context", "cutoff", "input", "cached", "output", "as of")
    _print_columns([headings, *map(_model_row, facts)])
    typer.echo("\ncontext in tokens; prices in US dollars per million tokens")
    for source in dict.fromkeys(figure.source for one in facts for figure in _figures(one)):
        typer.echo(f"source: {source}")


def _model_row(facts: ModelFacts) -> tuple[str, ...]:
    price = facts.price.value if facts.price else None
    days = sorted({str(figure.as_of) for figure in _figures(facts) if figure.as_of})
    return (
        facts.model,
        f"{facts.context_tokens.value:,}" if facts.context_tokens else _UNKNOWN,
        str(facts.knowledge_cutoff.value) if facts.knowledge_cutoff else _UNKNOWN,
        *(
            _UNKNOWN if figure is None else f"{figure:g}"
            for figure in (
                (price.input, price.cached_input, price.output) if price else (None, None, None)
            )
        ),
        days[0] if days else "",
    )


def _figures(facts: ModelFacts) -> Iterator[Figure[Any]]:
    for figure in (facts.context_tokens, facts.knowledge_cutoff, facts.price):
        if figure is not None:
            yield figure


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (printable(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _document(rows: Sequence[Provider], known: Catalogue, only: str | None) -> dict[str, Any]:
    return {
        "providers": [
            {
                "name": row.name,
                "key_variable": row.key_variable,
                "key_required": row.key_required,
                "base_url": row.own_url,
                "base_url_variable": row.url_variable,
                "extra": row.extra,
            }
            for row in rows
        ],
        "models": [
            _facts_document(facts)
            for (owner, _), facts in known.facts.items()
            if only in (None, owner)
        ],
    }


def _facts_document(facts: ModelFacts) -> dict[str, Any]:
    price = facts.price.value if facts.price else None
    return {
        "provider": facts.provider,
        "model": facts.model,
        "context_tokens": _figure_document(facts.context_tokens),
        "knowledge_cutoff": _figure_document(facts.knowledge_cutoff),
        "price": price
        and {
            **_figure_document(facts.price),
            "value": {
                "input": price.input,
                "output": price.output,
                "cached_input": price.cached_input,
                "up_to_tokens": price.up_to_tokens,
            },
        },
    }


def _figure_document(figure: Figure[Any] | None) -> dict[str, Any]:
    if figure is None:
        return {"value": None, "as_of": None, "source": None}
    day = str(figure.as_of) if figure.as_of else None
    value = figure.value
    return {
        "value": value if isinstance(value, int) else str(value),
        "as_of": day,
        "source": figure.source,
    }
