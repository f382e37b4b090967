"""Commands on recorded replies: ``cassette pack|unpack|verify|stats|explain|prune``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtester.cli.environment import data_folder, environment, reports_folder
from backtester.cli.runs import DataDir, ReportsDir, RunName
from backtester.errors import DataError, UsageError
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.replies.cache import CacheProblem, ReplyCache

app = typer.Typer(
    help="Pack recorded replies, carry them, check them, and tell why one was missed.",
    no_args_is_help=True,
)

CassetteFile = Annotated[Path, typer.Argument(help="Packed run, *.jsonl.zst.")]
Place = Annotated[
    Path | None,
    typer.Argument(help="Packed run, or folder of a cache; default the cache of the data folder."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
# A shorter value, such as local servers are given for a key, may be a word of a prompt.
_SECRET_LENGTH = 16
_SHOWN = 20


@app.command("pack")
def pack(
    name: RunName,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write, *.jsonl.zst.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it differs.")] = False,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Pack a finished run into one file: its manifest, the replies that it used, its journal."""
    from backtester.packs.packs import pack_run
    from backtester.replies.recordings import open_recordings
    from backtester.runs.folder import find_run

    folder = find_run(reports_folder(reports_dir), name)
    secrets = _secrets(folder.read_manifest().config)
    cache = open_recordings(_cache(data_dir))
    done = pack_run(folder, cache, out, force=force, secrets=secrets)
    if not done.new:
        typer.echo(f"{out} holds {folder.run_id} already, content {done.content}")
        return
    typer.echo(
        f"packed {folder.run_id} into {out}: {_count(done.answers, 'answer')}, "
        f"{_count(done.journal, 'journal line')}, {_count(done.size, 'byte')}\n"
        f"content {done.content}"
    )


def _secrets(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of all variables that hold a key, by name."""
    from tradingagents_core.llm.providers import PROVIDERS

    names = [name for row in PROVIDERS.values() for name in row.secret_variables]
    names += [value for name, value in config.items() if name.endswith("api_key_env")]
    # A manifest may be damaged, and hold something else than a name there.
    named = [name for name in names if name and isinstance(name, str)]
    held = {name: environment().get(name, "").strip() for name in named}
    return {name: value for name, value in held.items() if len(value) >= _SECRET_LENGTH}


@app.command("unpack")
def unpack(file: CassetteFile, data_dir: DataDir = None) -> None:
    """Add the replies of a packed run to the cache; those that are there stay."""
    from backtester.packs.packs import read_head
    from backtester.replies.cache import ReplyCache
    from backtester.replies.recordings import unpack as unpack_answers

    manifest = read_head(file)
    done = unpack_answers(file, ReplyCache.open(_cache(data_dir)))
    typer.echo(
        f"{done.added} replies added, {done.present} were there; "
        f"'backtester run --from {file}' makes {manifest.run_id} from them"
    )


@app.command("verify")
def verify(place: Place = None, data_dir: DataDir = None) -> None:
    """Derive every key again and check every record, of the cache or of a packed run."""
    from backtester.replies.cassette import names_cassette
    from backtester.replies.recordings import verify_cache

    where = place or _cache(data_dir)
    if where.is_file() or names_cassette(str(where)):
        _verify_pack(where)
        return
    report = verify_cache(where)
    _tell_problems(report.problems)
    if report.problems:
        raise DataError(
            f"cache {where} has {_count(len(report.problems), 'damaged record')} of "
            f"{report.records}: bring back a whole copy, or delete the cache and record again"
        )
    typer.echo(f"cache {where}: {report.records} records, every key derived again, all whole")


def _verify_pack(path: Path) -> None:
    from backtester.packs.packs import verify_pack

    with tempfile.TemporaryDirectory(prefix="verify-") as place:
        report = verify_pack(path, Path(place))
    answers = report.answers
    _tell_problems(answers.problems)
    if answers.problems:
        raise DataError(
            f"cassette {path} has {_count(len(answers.problems), 'answer')} of {answers.records} "
            "that do not fit: fetch a whole copy, or pack the run again"
        )
    manifest = report.manifest
    typer.echo(f"run       {manifest.run_id}")
    typer.echo(f"root      {manifest.results_root}")
    typer.echo(f"snapshot  {manifest.snapshot_id} ({manifest.snapshot_name})")
    typer.echo(f"prompts   {manifest.prompt_fingerprint}")
    typer.echo(
        f"cassette {path}: {_count(answers.records, 'answer')}, "
        f"{_count(report.journal, 'journal line')}, every key derived again, all whole"
    )


def _tell_problems(problems: Iterable[CacheProblem]) -> None:
    for number, problem in enumerate(problems):
        if number == _SHOWN:
            typer.echo("problem: ... and more", err=True)
            break
        typer.echo(f"problem: {printable(' '.join(str(problem).split()))}", err=True)


@app.command("stats")
def stats(place: Place = None, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Count recorded replies by node and model: tokens, characters, age."""
    from backtester.cli.render import show_stats
    from backtester.replies.recordings import answers_of
    from backtester.replies.recordings import stats as count

    rows = count(answers_of(place or _cache(data_dir)))
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2, sort_keys=True))
        return
    show_stats(rows)


@app.command("explain")
def explain(
    key: Annotated[str, typer.Argument(help="Key of a call, or the front of one.")],
    place: Place = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Show the parts of a key, who asked it, and how the nearest recorded call differs.

    A key that a replay missed is known too, where a journal tells what was asked.
    """
    from backtester.packs.packs import lay_down
    from backtester.replies.cassette import names_cassette
    from backtester.replies.recordings import open_recordings

    where = place or _cache(data_dir)
    if names_cassette(str(where)):
        with tempfile.TemporaryDirectory(prefix="explain-") as folder:
            laid = lay_down(where, Path(folder))
            journals = {f"cassette {where}": laid.folder.journal_path}
            _tell_key(key, open_recordings(laid.cache_dir), journals)
        return
    reports = reports_folder(reports_dir)
    found = sorted(reports.rglob("journal.jsonl"))
    _tell_key(key, open_recordings(where), {str(path.parent): path for path in found})


def _tell_key(key: str, cache: ReplyCache, journals: Mapping[str, Path]) -> None:
    from backtester.packs.explanation import explain as look_up

    for line in look_up(key, cache, journals).lines():
        typer.echo(printable(line, keep=""))


@app.command("prune")
def prune(
    unused: Annotated[
        bool, typer.Option("--unused", help="Replies that no journal in the reports folder names.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; without it, list them.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """List the replies that no run and no memory uses any more, or delete them."""
    from backtester.packs.pruning import prune as prune_cache

    if not unused:
        raise UsageError("say what is to go: --unused (what no journal names); nothing was deleted")
    reports = reports_folder(reports_dir)
    done = prune_cache(_cache(data_dir), reports, delete=yes)
    if as_json:
        typer.echo(json.dumps(asdict(done), indent=2, sort_keys=True))
        return
    for row in done.unused[:_SHOWN]:
        words = f"{row.key}  {row.recorded_at}  {row.characters:>9}  {row.node}  {row.model}"
        typer.echo(printable(words, keep=""))
    if len(done.unused) > _SHOWN:
        typer.echo(f"... and {len(done.unused) - _SHOWN} more (--json lists all)")
    typer.echo(
        f"{_count(len(done.unused), 'reply', 'replies')} of {done.records} "
        f"{'deleted' if yes else 'unused'}, "
        f"{_count(sum(row.characters for row in done.unused), 'character')}; {done.kept} kept for "
        f"{_count(done.journals, 'journal')} in {reports}, {done.recent} for unfinished "
        "runs and analyses there"
    )
    if done.unused and not yes:
        typer.echo(
            "nothing was deleted: --yes does it; not seen here: runs in other reports folders, and "
            "what a run that is yet to come could have used"
        )


def _cache(data_dir: Path | None) -> Path:
    from backtester.walk.plan import cache_folder

    return cache_folder(data_folder(data_dir))


def _count(number: int, word: str, words: str = "") -> str:
    return f"{number} {word if number == 1 else words or f'{word}s'}"
