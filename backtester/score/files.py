"""Where a score is kept: a folder of its own beside the run's journal, written whole or not at all.

    reports/<run_id>/scores/<score_id>/
        definition.json     what the score is a function of, and the hash of each file
        returns.parquet ... one file for each table

The files are written to a folder with another name, synced, and renamed; what a killed writer left
is removed by the next one. A reader checks every hash.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backtester.errors import DataError, UsageError
from backtester.parquet import read_parquet
from backtester.score.records import TABLES_OF_A_SCORE, Row, checked_table, table_of
from backtester.score.trials import hash_of

SCORES_FOLDER: Final = "scores"
SCORE_FORMAT: Final = 3
_READABLE: Final = (1, 2, SCORE_FORMAT)
_DEFINITION: Final = "definition.json"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,79}")
LIMIT: Final = 1e9
"""What the database adds up must stay under it, see `store.terms`; `ADDED_UP` says what that is."""

ADDED_UP: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "returns": (
            "raw_price",
            "raw_total",
            "benchmark_return",
            "alpha",
            "alpha_cc",
            "directional_alpha",
        ),
        "horizon_returns": (
            "raw_total",
            "benchmark_return",
            "alpha",
            "geometric_alpha",
            "directional_alpha",
        ),
        "orders": ("target_weight",),
        "positions": ("weight",),
        "equity": ("gross", "net", "model_cost", "ret"),
        "metrics": ("level", "p_value"),
        "event_study": ("mean_excess", "mean_path", "stddev_path"),
    }
)
_AGAIN: Final = "remove its folder and score again"


class NewerScore(DataError):
    """Report a score that a newer release made: it is not damaged, and stays as it is."""


class ScoreCard(BaseModel):
    """Describe a stored score.

    Attributes:
        format: `SCORE_FORMAT`.
        score_id: Its name.
        results_root: Of the decisions that were scored.
        snapshot_name: Snapshot that it was scored on.
        definition: See `ScoreDefinition.document`.
        family: Hash of universe and window.
        trial: Hash of what was tried.
        known_trials: Distinct related trials known to the workspace when it was made, see `trials`.
        family_trials: Those of exactly its universe and window; None in format 1, whose
            ``known_trials`` counts these.
        no_book: Why there is no book, or None.
        files: Table -> sha256 of its file.
        books: Lines that it has in the ledger; None before format 3.
        sha256: Of all the above, as canonical JSON; None before it is written, and in cards of
            formats 1 and 2. These read, for the hashes of their files hold all figures; that the
            card itself is as it was written cannot be told, and `rebuild` says so. One that is
            asked for again is made anew.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int
    score_id: str
    results_root: str
    snapshot_name: str
    definition: dict[str, Any]
    family: str
    trial: str
    known_trials: int = Field(ge=1)
    family_trials: int | None = None
    no_book: str | None
    files: dict[str, str]
    books: int | None = None
    sha256: str | None = None

    def digest(self) -> str:
        """Return the hash of what it says."""
        return hash_of(self.model_dump(mode="json", exclude={"sha256"}))


@dataclass(frozen=True, kw_only=True)
class StoredScore:
    """Hold a score as it lies on the disk.

    Attributes:
        card: What it is.
        tables: Table -> columns, without run and score.
    """

    card: ScoreCard
    tables: Mapping[str, pa.Table]

    @property
    def score_id(self) -> str:
        """Its name."""
        return self.card.score_id


def scores_folder(run_folder: Path) -> Path:
    """Return where a run's scores are."""
    return run_folder / SCORES_FOLDER


def checked_tables(score_id: str, rows: Mapping[str, Sequence[Row]]) -> dict[str, pa.Table]:
    """Return the tables of a score, or refuse what could be stored or published only in part.

    Raises:
        DataError: A number that no table may hold, or one too large to be added up.
    """
    tables = {name: table_of(name, rows.get(name, ())) for name in TABLES_OF_A_SCORE}
    for name, table in tables.items():
        for column in ADDED_UP[name]:
            small = pc.less(pc.abs(table.column(column)), pa.scalar(LIMIT))
            if not pc.all(small, skip_nulls=True, min_count=0).as_py():
                raise DataError(
                    f"score {score_id}: a value of {name}.{column} is not under {LIMIT:g}, so it "
                    "cannot be added up exactly: score under smaller costs, nothing was stored"
                )
    return tables


def write_score(run_folder: Path, card: ScoreCard, tables: Mapping[str, pa.Table]) -> StoredScore:
    """Store a score in the place of one with its name; call it under the run's lock.

    Args:
        run_folder: The run's folder.
        card: What it is; the hashes of its files are filled in here.
        tables: All its tables, see `checked_tables`.

    Returns:
        What `read_score` would read.

    Raises:
        UsageError: The folder cannot be written.
    """
    if not _NAME.fullmatch(card.score_id):
        raise UsageError(f"{card.score_id!r} is no name of a score: letters, digits, '-' and '.'")
    place = scores_folder(run_folder)
    target, fresh = place / card.score_id, place / f".{card.score_id}.new"
    gone = place / f".{card.score_id}.old"
    try:
        place.mkdir(exist_ok=True)
        _bring_back(place)
        for left in (fresh, gone):
            shutil.rmtree(left, ignore_errors=True)
        fresh.mkdir()
        files = {name: _write(fresh / f"{name}.parquet", _parquet(t)) for name, t in tables.items()}
        whole = card.model_copy(update={"files": files})
        whole = whole.model_copy(update={"sha256": whole.digest()})
        text = json.dumps(whole.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
        _write(fresh / _DEFINITION, text.encode())
        _sync(fresh)
        if target.exists():
            target.replace(gone)
        fresh.replace(target)
        _sync(place)
        shutil.rmtree(gone, ignore_errors=True)
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written ({error.strerror or error}): free the folder, or name "
            "another with --reports-dir"
        ) from error
    return StoredScore(card=whole, tables=tables)


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    # Numbers hardly ever come twice: a dictionary of them takes longer and saves nothing.
    words = [one.name for one in table.schema if not pa.types.is_floating(one.type)]
    pq.write_table(table, sink, compression="zstd", use_dictionary=words)  # type: ignore[arg-type]
    return sink.getvalue()


def _write(path: Path, content: bytes) -> str:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _bring_back(place: Path) -> None:
    """Give a score its name again whose writer was killed before the new one had it."""
    for old in sorted(place.glob(".*.old")):
        target = place / old.name[1 : -len(".old")]
        if (old / _DEFINITION).is_file() and not target.exists():
            # A folder that only reads keeps it aside, and so does one whose writer goes on.
            with suppress(OSError):
                old.replace(target)


def score_ids(run_folder: Path) -> tuple[str, ...]:
    """Return the names of a run's stored scores, sorted."""
    place = scores_folder(run_folder)
    if not place.is_dir():
        return ()
    _bring_back(place)
    names = [child.name for child in sorted(place.iterdir()) if (child / _DEFINITION).is_file()]
    return tuple(sorted(name for name in names if not name.startswith(".")))


def read_card(run_folder: Path, score_id: str) -> ScoreCard:
    """Return what a stored score is.

    Raises:
        DataError: It is not there, of another release, or damaged.
    """
    path = scores_folder(run_folder) / score_id / _DEFINITION
    try:
        found = path.stat()
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        card = _card_at(path, stamp)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): {_AGAIN}") from error
    except ValidationError as error:
        _refuse_newer(path)
        raise DataError(f"{path} is damaged ({error.errors()[0]['msg']}): {_AGAIN}") from error
    if card.score_id != score_id or set(card.files) != set(TABLES_OF_A_SCORE):
        raise DataError(f"{path} is of another score or another release: {_AGAIN}")
    if card.format not in _READABLE:
        _refuse_newer(path)
        raise DataError(f"{path} has format {card.format}, not {SCORE_FORMAT}: {_AGAIN}")
    _refuse_changed(path, card, run_folder.name)
    return card


def _refuse_newer(path: Path) -> None:
    """Refuse a card that this release cannot know, and that a newer one reads."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    number = found.get("format") if isinstance(found, dict) else None
    if isinstance(number, int) and number > SCORE_FORMAT:
        raise NewerScore(
            f"{path} was made by a newer release of the product (format {number}, this one reads "
            f"up to {SCORE_FORMAT}): use that one"
        )


@lru_cache(maxsize=4096)
def _card_at(path: Path, stamp: tuple[int, ...]) -> ScoreCard:
    """Read a card once, however often it is asked for; ``stamp`` changes when the file does."""
    return ScoreCard.model_validate_json(path.read_bytes())


def _refuse_changed(path: Path, card: ScoreCard, run_id: str) -> None:
    # What older formats lack tells a card of this one whose number was lowered.
    hashed = card.format == SCORE_FORMAT or card.sha256 is not None or card.books is not None
    if hashed and card.sha256 != card.digest():
        raise DataError(f"{path} is damaged, its hash is another: {_AGAIN}")
    found = card.definition.get("run_id", run_id)
    if found != run_id:
        raise DataError(f"{path} is a score of run {found}, not of {run_id}: {_AGAIN}")


def read_score(run_folder: Path, score_id: str) -> StoredScore:
    """Read a stored score whole.

    Raises:
        DataError: It is not there, or a file of it is missing or was changed.
    """
    card = read_card(run_folder, score_id)
    tables = {name: read_score_table(run_folder, card, name) for name in TABLES_OF_A_SCORE}
    return StoredScore(card=card, tables=tables)


def read_score_table(run_folder: Path, card: ScoreCard, name: str) -> pa.Table:
    """Read one table of a stored score.

    Raises:
        DataError: Its file is missing or was changed.
    """
    path = scores_folder(run_folder) / card.score_id / f"{name}.parquet"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): {_AGAIN}") from error
    if hashlib.sha256(content).hexdigest() != card.files[name]:
        raise DataError(f"{path} is damaged, its hash is another: {_AGAIN}")
    try:
        return checked_table(name, read_parquet(content))
    except (DataError, pa.ArrowException) as error:
        raise DataError(f"{path} does not read ({error}): {_AGAIN}") from error


@dataclass(frozen=True, kw_only=True)
class StoredScores:
    """Hold the scores of a run's decisions, as far as they read.

    Attributes:
        whole: Those that read, by name.
        damaged: One line for each other one: what is wrong, where, and what to do.
    """

    whole: tuple[StoredScore, ...]
    damaged: tuple[str, ...]


def stored_scores(run_folder: Path, results_root: str | None) -> StoredScores:
    """Read a run's stored scores, those that were made of other decisions left out.

    Args:
        run_folder: The run's folder.
        results_root: Of the run as it is; None while it is not finished: then it has no scores.
    """
    whole: list[StoredScore] = []
    damaged: list[str] = []
    for score_id in score_ids(run_folder) if results_root is not None else ():
        try:
            if read_card(run_folder, score_id).results_root == results_root:
                whole.append(read_score(run_folder, score_id))
        except DataError as error:
            damaged.append(str(error))
    return StoredScores(whole=tuple(whole), damaged=tuple(damaged))


@dataclass(frozen=True, kw_only=True)
class StoredCards:
    """Hold the cards of a run's decisions, as far as they read; see `StoredScores`."""

    whole: tuple[ScoreCard, ...]
    damaged: tuple[str, ...]


def stored_cards(run_folder: Path, results_root: str) -> StoredCards:
    """Read what a run's scores are, those that were made of other decisions left out."""
    whole: list[ScoreCard] = []
    damaged: list[str] = []
    for score_id in score_ids(run_folder):
        try:
            whole.append(read_card(run_folder, score_id))
        except DataError as error:
            damaged.append(str(error))
    of_these = tuple(card for card in whole if card.results_root == results_root)
    return StoredCards(whole=of_these, damaged=tuple(damaged))
