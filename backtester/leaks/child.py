"""Run somebody's pipeline in one world, in a process of its own: ``python -m`` with a job.

A process for each world keeps what a pipeline remembers (a module's variables, a memoised answer)
from hiding a difference. Before the pipeline is imported the clock is moved, where that is the
world, the network is shut, and the files of all snapshots are watched.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import asdict, dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from backtester.errors import UsageError
from backtester.leaks.clock import moved_clock
from backtester.leaks.poison import WAYS, Futures, Planted, Way
from backtester.leaks.watch import FileWatch, Sightings
from backtester.network import NetworkBlocked, network_blocked
from backtester.records import ReadRecord
from backtester.snapshots.snapshot import Snapshot, open_folder
from backtester.snapshots.view import AsOfView, ViewCache
from tradingagents_core.errors import LookaheadError

READY: Final = "ready"
IMPORT: Final = "import"
_SEEN: Final = tuple(part.name for part in dataclasses.fields(Sightings))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Name one call of the pipeline."""

    ticker: str
    session: str
    cutoff: str

    @property
    def key(self) -> str:
        """Ticker and session, as findings write them."""
        return f"{self.ticker}|{self.session}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """Say what a child has to do.

    Attributes:
        target: ``package.module:callable``.
        snapshot: Folder of the snapshot.
        way: Name of the world, or empty for the true one.
        decision_time: ``close`` or ``open``.
        calls: In the order of their cutoffs.
        watched: Folders whose files only views may read.
        paths: Where modules are looked for, beside the child's own places.
        result: File that the answers go to.
        since: When the audit began, in nanoseconds, as the file system has it.
    """

    target: str
    snapshot: str
    way: str
    decision_time: Literal["close", "open"]
    calls: tuple[Asked, ...]
    watched: tuple[str, ...]
    paths: tuple[str, ...]
    result: str
    since: int = 0

    @classmethod
    def of_json(cls, text: str) -> Job:
        """Read a job back."""
        fields = json.loads(text)
        calls = tuple(Asked(**call) for call in fields.pop("calls"))
        for name in ("watched", "paths"):
            fields[name] = tuple(fields[name])
        return cls(**fields, calls=calls)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Hold what one call of the pipeline gave.

    Attributes:
        key: Ticker and session, or ``import`` for what happened before the first call.
        text: What it returned, as text; ``raised ...`` for an error.
        raised: Whether it raised.
        trouble: ``network``, ``lookahead`` or ``return`` with words, where the call could not
            count.
        surely: Files of a snapshot that this process opened.
        somebody: Files of a snapshot that somebody opened.
        elsewhere: Other files that were there and were read.
        fresh: Those of them that had been written since the audit began.
        planted: What was changed, by table: rows, added rows and texts.
        reads: Reads of the view.
    """

    key: str
    text: str = ""
    raised: bool = False
    trouble: tuple[str, str] | None = None
    surely: tuple[str, ...] = ()
    somebody: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    planted: Mapping[str, Planted] = dataclasses.field(default_factory=dict)
    reads: int = 0

    @classmethod
    def of_json(cls, line: str) -> Answer:
        """Read an answer back."""
        fields = json.loads(line)
        trouble = fields.pop("trouble")
        planted = {name: Planted(**one) for name, one in fields.pop("planted").items()}
        for name in _SEEN:
            fields[name] = tuple(fields[name])
        return cls(**fields, trouble=None if trouble is None else tuple(trouble), planted=planted)


def text_of(value: object) -> str:
    """Return what a pipeline gave as text that two worlds can be compared by.

    Raises:
        TypeError: It holds something that is neither text, number, date, list nor mapping.
        ValueError: It holds itself; `RecursionError`, it is nested too deep.
    """
    return value if isinstance(value, str) else json.dumps(value, default=_plain, indent=1)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, date):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "tolist"):
        # A number or an array of numpy.
        return value.tolist()
    raise TypeError(
        f"a {type(value).__name__} cannot be compared: return text, or lists and mappings of text"
    )


def find(target: str) -> Any:
    """Import a callable.

    Raises:
        UsageError: There is none of that name.
    """
    module, _, name = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except NetworkBlocked:
        raise
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"pipeline {target}: {error}: write package.module:callable") from error
    # Somebody's module, which may raise anything.
    except Exception as error:
        raise UsageError(
            f"pipeline {target} cannot be imported ({type(error).__name__}: {error}): mend it"
        ) from error
    if not callable(found):
        raise UsageError(
            f"pipeline {target} cannot be called: name a function of view, ticker, day"
        )
    return found


class Worlds:
    """Call a pipeline at each cutoff of one world.

    Args:
        snapshot: The true snapshot.
        way: How it is changed, None for not at all.
        decision_time: Of the views.
    """

    def __init__(
        self, snapshot: Snapshot, way: Way | None, decision_time: Literal["close", "open"]
    ) -> None:
        self._way = way
        self._decision_time = decision_time
        self._futures = Futures(snapshot)
        self._at = ""
        self._world, self._views = snapshot, ViewCache(snapshot)
        self._planted: Mapping[str, Planted] = {}

    def call(self, pipeline: Any, asked: Asked) -> Answer:
        """Call it once."""
        self._move_to(asked)
        reads: list[ReadRecord] = []
        view = AsOfView(
            self._world,
            cutoff=datetime.fromisoformat(asked.cutoff),
            session=date.fromisoformat(asked.session),
            decision_time=self._decision_time,
            on_read=reads.append,
            cache=self._views,
        )
        answer = _answered(pipeline, view, asked)
        return dataclasses.replace(answer, planted=self._planted, reads=len(reads))

    def _move_to(self, asked: Asked) -> None:
        if self._way is None or asked.cutoff == self._at:
            return
        self._at = asked.cutoff
        world = self._futures.world(
            self._way, datetime.fromisoformat(asked.cutoff), date.fromisoformat(asked.session)
        )
        self._planted = world.planted
        if world.snapshot is not self._world:
            self._world, self._views = world.snapshot, ViewCache(world.snapshot)


def _answered(pipeline: Any, view: AsOfView, asked: Asked) -> Answer:
    key = asked.key
    try:
        with network_blocked():
            value = pipeline(view, asked.ticker, date.fromisoformat(asked.session))
    except NetworkBlocked as error:
        return Answer(key=key, trouble=("network", str(error)))
    except LookaheadError as error:
        return Answer(key=key, trouble=("lookahead", str(error)))
    except Exception as error:  # noqa: BLE001 - somebody's code, and its error is its answer
        return Answer(key=key, text=f"raised {type(error).__name__}: {error}", raised=True)
    try:
        return Answer(key=key, text=text_of(value))
    except (TypeError, ValueError, RecursionError) as error:
        return Answer(key=key, trouble=("return", str(error)))


def answers(job: Job, watch: FileWatch, snapshot: Snapshot) -> Iterator[Answer]:
    """Import the pipeline and call it for each ticker and session.

    Raises:
        UsageError: There is no such pipeline.
    """
    way = next((way for way in WAYS if way.name == job.way), None)
    worlds = Worlds(snapshot, way, job.decision_time)
    watch.sightings()
    with network_blocked():
        pipeline = find(job.target)
    yield _with(Answer(key=IMPORT), watch.sightings())
    for asked in job.calls:
        answer = worlds.call(pipeline, asked)
        yield _with(answer, watch.sightings())


def _with(answer: Answer, seen: Sightings) -> Answer:
    return dataclasses.replace(answer, **{name: getattr(seen, name) for name in _SEEN})


def _clock_of(way: str) -> AbstractContextManager[Any]:
    return moved_clock() if way == "moved" else nullcontext()


def main(words: Sequence[str]) -> int:
    """Do the job in the file that is named, once standard input says go."""
    job = Job.of_json(Path(words[0]).read_text(encoding="utf-8"))
    sys.path += [path for path in job.paths if path not in sys.path]
    snapshot = open_folder(Path(job.snapshot), verify=False)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    # Others open the snapshot until all are ready, and a watch would see them do it.
    sys.stdin.readline()
    watch = FileWatch([Path(folder) for folder in job.watched], since=job.since)
    with (
        Path(job.result).open("w", encoding="utf-8") as result,
        redirect_stdout(sys.stderr),
        _clock_of(job.way),
    ):
        try:
            for answer in answers(job, watch, snapshot):
                result.write(json.dumps(asdict(answer)) + "\n")
        except (UsageError, NetworkBlocked) as error:
            result.write(json.dumps({"refused": str(error)}) + "\n")
    return 0


def _end(code: int) -> NoReturn:
    """End this process without its last rites, for the pipeline may have left a thread behind.

    A thread of Python would be waited for. A native one (Arrow, DuckDB) that still works aborts the
    process while the interpreter is taken down, though every answer has been given by then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main(sys.argv[1:]))
