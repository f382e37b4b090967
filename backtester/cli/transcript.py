"""``transcript``: what a cell's models were sent and what they answered, call by call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtester.cli.environment import data_folder, reports_folder
from backtester.cli.runs import DataDir, ReportsDir, RunName, whole
from backtester.errors import DataError, UsageError
from backtester.spellings import shown
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.records import CellKey, CellRecord, LessonRecord
    from backtester.replies.cache import ReplyCache


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("transcript")(transcript)


def transcript(
    name: RunName,
    ticker: Annotated[str, typer.Argument(help="Instrument id.")],
    session: Annotated[str, typer.Argument(help="Decision session, YYYY-MM-DD.")],
    trial: Annotated[
        int, typer.Option(parser=whole("--trial"), metavar="INTEGER", help="Repeat number.")
    ] = 0,
    node: Annotated[str | None, typer.Option(help="Only this node, such as Trader.")] = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Print every prompt and reply of one decision and of its lesson, from the record."""
    from backtester.records import CellKey
    from backtester.replies.cache import ReplyCache
    from backtester.runs.folder import find_run
    from backtester.runs.journal import read_ledger
    from backtester.walk.plan import cache_folder

    folder = find_run(reports_folder(reports_dir), name)
    ledger = read_ledger(folder.journal_path)
    key = CellKey(session=_date(session), ticker=ticker, trial=trial)
    cell = ledger.cells.get(key)
    if cell is None:
        raise DataError(_no_cell(folder.run_id, key, ledger.cells))
    cache = ReplyCache.open(cache_folder(data_folder(data_dir)), read_only=True)
    owners: list[CellRecord | LessonRecord] = [cell]
    if key in ledger.lessons:
        owners.append(ledger.lessons[key])
    count = 0
    for owner in owners:
        for text in _calls(owner, cache, node):
            count += 1
            typer.echo(printable(text))
    if count == 0:
        nodes = dict.fromkeys(call.node for owner in owners for call in owner.calls)
        known = f": its nodes are {', '.join(nodes)}" if nodes else ""
        raise UsageError(f"{key} made no call{f' from node {shown(node)}' if node else ''}{known}")


def _no_cell(run_id: str, key: CellKey, cells: Iterable[CellKey]) -> str:
    """Say what a run has where the cell that was asked for should be."""
    ours = sorted(other.session for other in cells if other.ticker == key.ticker)
    if ours:
        return (
            f"run {run_id} has no cell {key}: {key.ticker} has {len(ours)} from {ours[0]} to "
            f"{ours[-1]}: see 'backtester sql' on cells"
        )
    tickers = ", ".join(sorted({other.ticker for other in cells})) or "none yet"
    return f"run {run_id} has no cell {key}: its tickers are {tickers}"


def _calls(owner: CellRecord | LessonRecord, cache: ReplyCache, node: str | None) -> Iterator[str]:
    outcomes = {(o.node, o.index, o.attempt): o for o in owner.outcomes}
    for call in owner.calls:
        if node is not None and call.node != node:
            continue
        head = f"=== {call.node}, call {call.index}, attempt {call.attempt}, key {call.key[:12]}"
        failed = outcomes.get((call.node, call.index, call.attempt))
        if failed is not None:
            answer = f"--- no answer ({failed.kind}: {failed.message})\n{failed.text}"
            yield f"{head}\n{_messages(failed.request)}\n{answer}"
            continue
        record = cache.get(call.key)
        if record is None:
            yield f"{head}\n(not in the cache {cache.folder})"
            continue
        asked = "".join(f"\n[calls {c.name}({c.args})]" for c in record.reply.tool_calls)
        answer = f"--- answer ({call.finish_reason})\n{record.reply.text}{asked}"
        yield f"{head}\n{_messages(record.request)}\n{answer}"


def _messages(request: str) -> str:
    body: dict[str, Any] = json.loads(request)["body"]
    return "\n".join(_message(message) for message in body.get("messages", body.get("input", [])))


def _message(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    calls = [call["function"] for call in message.get("tool_calls") or []]
    asked = "".join(f"\n[calls {call['name']}({call['arguments']})]" for call in calls)
    return f"--- {message.get('role', 'item')}\n{text}{asked}"


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"SESSION {shown(text)} is no date: write YYYY-MM-DD") from error
