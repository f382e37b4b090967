"""Audit somebody's own pipeline on a snapshot: does its output depend on what came later?

The pipeline is a callable ``package.module:name`` that is called with three positional arguments

    view      what was known at the cutoff: ``view.bars(ticker)``, ``view.indicators(...)``,
              ``view.rows("news", ticker)``, ``view.identity(ticker)``, ``view.session``,
              ``view.cutoff`` (`tradingagents_core.protocols.View`)
    ticker    the instrument's id in the snapshot, as text
    session   the decision's date

and returns what is to be compared: its prompts, its decision, or both, as text or as lists and
mappings of text, numbers and dates. That must depend on the view alone, so a pipeline that asks a
model returns its prompts, or answers from a record: the network is shut.

It is called for every ticker and session in the true world, in the true world again, and in each
changed one (`poison.WAYS`): the future rewritten with canary words, the data cut at the session,
the clock and time zone moved. Each world is a process of its own with another hash seed, sessions
in order, so nothing that the pipeline remembers can hide a difference. Caught are: an output that
differs or holds a canary (the future came through the view, through the snapshot behind it, or
through a global that holds either), a file of any snapshot that is opened past the view, also
while the module is imported or by a C library, and a network connection. An output that differs
without any change proves nothing, and fails as ``repeat``; so does, as ``memory``, one that rests
on a file that was written since the audit began, for it may repeat what another world gave.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Final, Literal

from backtester.errors import DataError, UsageError
from backtester.leaks.child import IMPORT, READY, Answer, Asked, Job
from backtester.leaks.clock import STAY
from backtester.leaks.poison import MOVED, WAYS, Futures, Planted, Way, canaries_in
from backtester.leaks.report import (
    CLOCK,
    FILES,
    STAMPS,
    Finding,
    LeakReport,
    NoSteps,
    Steps,
    Tally,
    static_names,
    table_lines,
    way_names,
)
from backtester.leaks.requests import line_difference
from backtester.loading import load_config
from backtester.schema import TABLES
from backtester.snapshots.snapshot import Snapshot, find_snapshot, snapshot_names
from backtester.walk.plan import Plan, lay_out

_TRUE: Final = "true"
_AGAIN: Final = "again"
# Another process may open a snapshot by chance, but not at the same call of two worlds.
_SURE_IN: Final = 2
_MOST_NAMED: Final = 5
# What a function without a result gives, as text.
_NOTHING: Final = frozenset({"", "null", "[]", "{}"})

ELSEWHERE: Final = (
    "data elsewhere: files, databases and variables that hold the future and come from no snapshot"
)
CHILDREN: Final = (
    "programs that it starts: the network is not shut to them; and clocks that a C library reads "
    f"by itself, which are not moved: {STAY}"
)
NO_KERNEL: Final = "files opened by C libraries: only on Linux can they be seen"
MODEL: Final = "the model: its answers are not part of this, and neither is its training data"


@dataclass(frozen=True, kw_only=True)
class PipelineQuestion:
    """Say what is to be audited.

    Attributes:
        pipeline: ``package.module:callable``, or a function of a module.
        snapshot: Opened from a folder.
        tickers: Instruments.
        dates: Decision dates as text with commas, or the name of a grid with start and end.
        start: First date of a grid.
        end: Last date of a grid.
        decision_time: ``close`` or ``open``.
        data_dir: Where other snapshots are, whose files are watched too.
    """

    pipeline: str | Callable[..., object]
    snapshot: Snapshot
    tickers: Sequence[str]
    dates: str
    start: str | None = None
    end: str | None = None
    decision_time: Literal["close", "open"] = "close"
    data_dir: Path


@dataclass(frozen=True, kw_only=True)
class _World:
    """Name one child's world."""

    name: str
    way: Way | None = None


_WORLDS: Final = (
    _World(name=_TRUE),
    _World(name=_AGAIN),
    *(_World(name=way.name, way=way) for way in WAYS),
)


def check_pipeline(
    question: PipelineQuestion, *, workers: int = 1, progress: Steps | None = None
) -> LeakReport:
    """Call a pipeline in every world and compare what it returns.

    Args:
        question: What is to be audited.
        workers: Processes at once.
        progress: Takes news.

    Raises:
        UsageError: The pipeline cannot be imported or called, or it returns what cannot be
            compared, or tickers or dates do not fit.
        DataError: The snapshot does not hold them, or the pipeline raised at every call.
    """
    progress = progress or NoSteps()
    target = target_of(question.pipeline)
    calls = _calls(question)
    names = tuple(world.name for world in _WORLDS)
    progress.began(f"{target} on {question.snapshot.name}", len(calls), names)
    found: dict[str, Sequence[Answer]] = {}
    with tempfile.TemporaryDirectory(prefix="leakcheck-") as name:
        place = Path(name)
        for first in range(0, len(_WORLDS), workers):
            wave = _WORLDS[first : first + workers]
            jobs = [_job(question, target, calls, one, place) for one in wave]
            for one, answered in zip(wave, _done(jobs), strict=True):
                found[one.name] = answered
                progress.advanced(len(calls), one.name, None)
    return report_of(question, target, found)


def target_of(pipeline: str | Callable[..., object]) -> str:
    """Return a pipeline as ``package.module:callable``, by which another process finds it.

    Raises:
        UsageError: It is a word of another form, or a function that no other process can import.
    """
    if isinstance(pipeline, str):
        module, _, name = pipeline.partition(":")
        if not module or not all(part.isidentifier() for part in f"{module}.{name}".split(".")):
            raise UsageError(f"pipeline {pipeline!r} does not read: write package.module:callable")
        return pipeline
    module, name = getattr(pipeline, "__module__", ""), getattr(pipeline, "__qualname__", "")
    if module in ("", "__main__") or not name or "<" in name:
        raise UsageError(
            f"pipeline {name or pipeline!r} cannot be imported by another process: put it into a "
            "module, for here it could remember what it has seen"
        )
    return f"{module}:{name}"


def _calls(question: PipelineQuestion) -> tuple[Asked, ...]:
    plan = _plan(question)
    return tuple(
        Asked(
            ticker=key.ticker,
            session=key.session.isoformat(),
            cutoff=barrier.cutoff.isoformat(),
        )
        for barrier in plan.barriers
        for key in barrier.keys
    )


def _plan(question: PipelineQuestion) -> Plan:
    """Lay the calls out as a run's cells are: tickers resolved, dates moved to sessions."""
    listed = sorted(day.strip() for day in question.dates.split(",") if day.strip())
    if not listed:
        raise UsageError("no date is given: write --dates 2018-01-05,2018-02-02, or a grid")
    config = load_config(
        flags={
            "tickers": tuple(question.tickers),
            "grid": question.dates,
            "start": question.start or listed[0],
            "end": question.end or listed[-1],
            "decision_time": question.decision_time,
            "benchmark": "none",
            "memory": "off",
            "data_dir": question.data_dir,
        }
    )
    return lay_out(config, question.snapshot, fingerprint="", scored=False)


# ------------------------------------------------------------------------------------ children


def _job(
    question: PipelineQuestion, target: str, calls: tuple[Asked, ...], world: _World, place: Path
) -> Path:
    job = Job(
        target=target,
        snapshot=str(question.snapshot.path),
        way=world.way.name if world.way else "",
        decision_time=question.decision_time,
        calls=calls,
        watched=tuple(str(path) for path in _watched(question)),
        paths=tuple(path for path in sys.path if path),
        result=str(place / f"{world.name}.answers"),
        since=_began(place),
    )
    file = place / f"{world.name}.job"
    file.write_text(json.dumps(asdict(job)), encoding="utf-8")
    return file


def _began(place: Path) -> int:
    """Return when the audit began by the clock of the file system, which no test moves."""
    mark = place / "began"
    if not mark.exists():
        mark.touch()
    return mark.stat().st_mtime_ns


def _watched(question: PipelineQuestion) -> list[Path]:
    names = snapshot_names(question.data_dir)
    folders = {find_snapshot(name, question.data_dir).resolve() for name in names}
    return sorted({*folders, question.snapshot.path})


def _done(jobs: Sequence[Path]) -> Iterator[tuple[Answer, ...]]:
    """Run children at once: all get ready first, for none may open a snapshot once one watches."""
    with ExitStack() as stack:
        children = []
        for job in jobs:
            child = subprocess.Popen(
                # Each has another hash seed, also where the environment fixes one.
                [sys.executable, "-R", "-m", "backtester.leaks.child", str(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(child)
            stack.callback(child.kill)
            children.append(child)
        for child in children:
            _require_ready(child)
        for child in children:
            _let_go(child)
        for job, child in zip(jobs, children, strict=True):
            child.communicate()
            yield answers_of(job, child.returncode)


def _require_ready(child: subprocess.Popen[str]) -> None:
    line = child.stdout.readline() if child.stdout else ""
    if line.strip() != READY:
        raise DataError("a process of the audit ended before it began; see its lines above")


def _let_go(child: subprocess.Popen[str]) -> None:
    if child.stdin is not None:
        # One that ended meanwhile is told apart by its code.
        with suppress(BrokenPipeError):
            child.stdin.write("go\n")
            child.stdin.flush()


def answers_of(job: Path, code: int) -> tuple[Answer, ...]:
    """Read the answers of a child that has ended.

    Raises:
        UsageError: It refused the pipeline.
        DataError: It ended before its last answer.
    """
    wanted = Job.of_json(job.read_text(encoding="utf-8"))
    lines = Path(wanted.result).read_text(encoding="utf-8").splitlines()
    answers = []
    for line in lines:
        refused = json.loads(line).get("refused")
        if refused:
            raise UsageError(refused)
        answers.append(Answer.of_json(line))
    if code != 0 or len(answers) != len(wanted.calls) + 1:
        raise DataError(
            f"pipeline {wanted.target} ended its process (code {code}) after {len(answers)} of "
            f"{len(wanted.calls) + 1} steps: nothing is proved"
        )
    return tuple(answers)


# ------------------------------------------------------------------------------------ comparing


def report_of(
    question: PipelineQuestion, target: str, found: Mapping[str, Sequence[Answer]]
) -> LeakReport:
    """Compare what a pipeline gave in every world.

    Args:
        question: What is audited.
        target: Name of the pipeline.
        found: World (``true``, ``again``, the names of `poison.WAYS`) -> answers, all in the same
            order, the first of them of the import.

    Raises:
        UsageError: It returned what cannot be compared.
        DataError: It raised at every call.
    """
    true = [answer for answer in found[_TRUE] if answer.key != IMPORT]
    _require_answers(target, true)
    tally = Tally()
    tally.findings += (*_of_files(found), *_of_memory(found))
    tally.findings += _of_trouble(found)
    unsteady = {
        finding.where for finding in tally.findings if finding.check not in ("file", "memory")
    }
    for answer in _differing(found, _AGAIN, unsteady):
        unsteady.add(answer.key)
        tally.findings.append(_not_repeated(found, answer))
    calls = _calls(question)
    for way in WAYS:
        given = [answer for answer in found[way.name] if answer.key != IMPORT]
        tally.prompts += len(given)
        pairs = zip(calls, given, strict=True)
        for _, group in groupby(pairs, key=lambda pair: pair[0].cutoff):
            at_once = [answer for _, answer in group]
            tally.tried(_counted(at_once[0], way), len(at_once))
        tally.findings += (
            _changed(found, answer, way) for answer in _differing(found, way.name, unsteady)
        )
    return LeakReport(
        subject=f"{target} on {question.snapshot.name}",
        ways=(_AGAIN, *way_names()),
        cutoffs=len({asked.cutoff for asked in calls}),
        prompts=tally.prompts,
        reads=sum(answer.reads for answer in true),
        tables=table_lines(tally, Futures(question.snapshot), extra=(CLOCK,)),
        findings=tuple(tally.findings),
        not_covered=_not_covered(question, found[_TRUE]),
        raised=sum(answer.raised for answer in true),
    )


def _not_covered(question: PipelineQuestion, true: Sequence[Answer]) -> tuple[str, ...]:
    asked = {answer.key.split("|")[0]: None for answer in true if answer.key != IMPORT}
    unseen = () if sys.platform == "linux" else (NO_KERNEL,)
    read = list(dict.fromkeys(path for answer in true for path in answer.elsewhere))
    more = f" and {len(read) - _MOST_NAMED} more" if len(read) > _MOST_NAMED else ""
    told = f"; it read {', '.join(read[:_MOST_NAMED])}{more}" if read else ""
    names = static_names(question.snapshot, asked)
    return (names, f"{ELSEWHERE}{told}", CHILDREN, *unseen, MODEL, STAMPS)


def _require_answers(target: str, true: Sequence[Answer]) -> None:
    for answer in true:
        if answer.trouble and answer.trouble[0] == "return":
            raise UsageError(f"pipeline {target} at {answer.key}: {answer.trouble[1]}")
    if all(answer.trouble is None and answer.text.strip() in _NOTHING for answer in true):
        raise UsageError(
            f"pipeline {target} returned nothing at any of {len(true)} calls, so there is nothing "
            "to compare: return its prompts, its decision, or both"
        )
    if all(answer.raised for answer in true):
        raise DataError(
            f"pipeline {target} raised at every one of {len(true)} calls, so nothing was "
            f"compared; first: {true[0].text}"
        )


def _counted(answer: Answer, way: Way) -> Mapping[str, Planted]:
    return {CLOCK: Planted(rows=1)} if way == MOVED else answer.planted


def _of_files(found: Mapping[str, Sequence[Answer]]) -> Iterator[Finding]:
    # In the order of the calls; a file that this process opened for sure counts as seen often.
    seen: Counter[tuple[str, str]] = Counter()
    for answers in found.values():
        for answer in answers:
            seen.update((answer.key, path) for path in answer.somebody)
            seen.update({(answer.key, path): _SURE_IN for path in answer.surely})
    places = [place for place, worlds in seen.items() if worlds >= _SURE_IN]
    calls = [answer.key for answer in found[_TRUE]]
    for key, path in sorted(places, key=lambda place: (calls.index(place[0]), place[1])):
        file = Path(path)
        yield Finding(
            check="file",
            where="while its module was imported" if key == IMPORT else key,
            detail=f"opened {file.parent.name}/{file.name} past the view, with every later row",
            table=file.stem if file.stem in TABLES else FILES,
        )


def _of_memory(found: Mapping[str, Sequence[Answer]]) -> Iterator[Finding]:
    places = {
        (answer.key, path)
        for answers in found.values()
        for answer in answers
        for path in answer.fresh
    }
    calls = [answer.key for answer in found[_TRUE]]
    for key, path in sorted(places, key=lambda place: (calls.index(place[0]), place[1])):
        yield Finding(
            check="memory",
            where="while its module was imported" if key == IMPORT else key,
            detail=f"it read {path}, which was written since the audit began: what another world "
            "left there can hide a difference; audit it without that memory",
            table=FILES,
        )


def _of_trouble(found: Mapping[str, Sequence[Answer]]) -> Iterator[Finding]:
    told: set[tuple[str, str]] = set()
    for world, answers in found.items():
        for answer in answers:
            if answer.trouble is None or (answer.key, answer.trouble[0]) in told:
                continue
            check, words = answer.trouble
            told.add((answer.key, check))
            yield Finding(check=check, where=answer.key, detail=f"{words} (world {world!r})")


def _differing(
    found: Mapping[str, Sequence[Answer]], world: str, unsteady: set[str]
) -> Iterator[Answer]:
    for true, other in zip(found[_TRUE], found[world], strict=True):
        if true.text != other.text and true.key not in unsteady:
            yield other


def _true(found: Mapping[str, Sequence[Answer]], key: str) -> Answer:
    return next(answer for answer in found[_TRUE] if answer.key == key)


def _not_repeated(found: Mapping[str, Sequence[Answer]], answer: Answer) -> Finding:
    return Finding(
        check="repeat",
        where=answer.key,
        detail="its output differs on the same data, so nothing is proved: "
        + _difference(_true(found, answer.key).text, answer.text),
    )


def _changed(found: Mapping[str, Sequence[Answer]], answer: Answer, way: Way) -> Finding:
    places = canaries_in(answer.text)
    finding = Finding(
        check="output",
        where=answer.key,
        detail=f"its output changed in a world {way.words}: "
        + _difference(_true(found, answer.key).text, answer.text),
        table=CLOCK if way == MOVED else "",
    )
    if not places:
        return finding
    return replace(finding, table=places[0].table, column=places[0].column)


def _difference(before: str, after: str) -> str:
    pairs: Iterator[Any] = zip_longest(before.splitlines(), after.splitlines(), fillvalue="")
    return line_difference([(old, new) for old, new in pairs if old != new])
