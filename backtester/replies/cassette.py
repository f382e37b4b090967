"""A cassette: the recording of one run as one file that people can carry, and need not trust.

``*.jsonl.zst``, made for version control: canonical JSON, one object a line, compressed. First
comes the run's manifest with its root, then the answers that the run used, by key, then the lines
of its journal (decisions, returns, lessons, and attempts without an answer), last a line with the
number of lines and the sha256 over all before it.

A cassette may come from a stranger. It is read line by line within limits, never as a whole; a line
in any other form than we write is refused, and no text of it names a file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
import zstandard
from pydantic import TypeAdapter, ValidationError

from backtester.errors import DataError, UsageError
from backtester.foreign_json import canonical_object, canonical_text
from backtester.named_files import open_named
from backtester.replies.answers import CacheRecord, record_of, record_text
from tradingagents_core.llm.keys import canonical_json

CASSETTE_FORMAT: Final = 1
COMPRESSION_LEVEL: Final = 12
# What compressed data begins with, by which a cassette is told from other files.
MAGIC: Final = b"\x28\xb5\x2f\xfd"
_CHUNK: Final = 2**20
_RECORD: Final = TypeAdapter(CacheRecord)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bound what is read of a cassette, so that a small file cannot fill memory or disk.

    Attributes:
        compressed: Bytes of the file.
        uncompressed: Bytes of its lines.
        ratio: Times that the lines may be longer than the file, once they are long.
        line: Bytes of one line.
        lines: Number of lines.
        journal: Bytes of the journal, which is read as a whole.
        window: Bytes that the decompressor may look back on, all in memory.
    """

    compressed: int = 2**31
    uncompressed: int = 2**34
    ratio: int = 500
    line: int = 2**25
    lines: int = 5_000_000
    journal: int = 2**28
    window: int = 2**27


LIMITS: Final = Limits()
# Up to this size the ratio says nothing: a short text of one letter compresses without end.
_RATIO_FROM: Final = 2**26


@dataclass(frozen=True, kw_only=True)
class Head:
    """Hold the first record: the run's manifest as JSON values, of any content."""

    manifest: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class JournalLine:
    """Hold one line of the run's journal without its line end, of any content."""

    text: str


Item = Head | CacheRecord | JournalLine


@dataclass(frozen=True, kw_only=True)
class Written:
    """Say what was written.

    Attributes:
        content: sha256 over the uncompressed lines, 64 hex digits.
        answers: Answers in it.
        journal: Lines of the journal in it.
        size: Bytes of the file.
        new: False where the file was there already with the same bytes.
    """

    content: str
    answers: int
    journal: int
    size: int
    new: bool


def is_cassette(path: Path) -> bool:
    """Say whether a path is a file that begins as a cassette does; never an error."""
    try:
        # Opening a pipe would wait for its other end.
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def names_cassette(name: str) -> bool:
    """Say whether a word of a command names a cassette rather than a run."""
    return name.endswith(".zst") or is_cassette(Path(name))


# -------------------------------------------------------------------------------------- writing


def write_cassette(
    path: Path,
    *,
    manifest: Mapping[str, Any],
    answers: Iterable[CacheRecord],
    journal: Iterable[str],
    force: bool = False,
    secrets: Mapping[str, str] | None = None,
) -> Written:
    """Write a cassette whole or not at all.

    Args:
        path: File to write.
        manifest: First record, JSON values.
        answers: By key, each key once.
        journal: Lines without their line ends.
        force: Replace a file that holds something else.
        secrets: Name -> text that may be in no line, such as the value of a key's variable.

    Raises:
        UsageError: Something else is there, it cannot be written, or a line holds a secret.
    """
    fresh: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            fresh = Path(file.name)
            done = _write_lines(file, _Lines(manifest, answers, journal), secrets or {})
            file.flush()
            os.fsync(file.fileno())
        return _placed(fresh, path, done, force=force)
    except OSError as error:
        raise UsageError(f"cassette {path} cannot be written: {error.strerror or error}") from error
    finally:
        if fresh is not None:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)


@dataclass
class _Lines:
    """Spell out a cassette's lines, and count them by kind."""

    manifest: Mapping[str, Any]
    records: Iterable[CacheRecord]
    lines: Iterable[str]
    answers: int = 0
    journal: int = 0
    journal_size: int = 0

    def require_readable(self, data: bytes) -> None:
        """Refuse to write what nobody could read again."""
        if len(data) > LIMITS.line or self.journal_size > LIMITS.journal:
            raise UsageError(
                "the run is too large for a cassette: a line takes up to "
                f"{LIMITS.line >> 20} MiB, a journal up to {LIMITS.journal >> 20} MiB"
            )

    def __iter__(self) -> Iterator[str]:
        head = {"format": CASSETTE_FORMAT, "kind": "manifest", "manifest": self.manifest}
        yield canonical_json(head)
        for record in self.records:
            about, reply, request = record_text(record).split("\n")
            yield f'{{"about":{about},"kind":"answer","reply":{reply},"request":{request}}}'
            self.answers += 1
        for line in self.lines:
            self.journal_size += len(line)
            yield canonical_json({"kind": "journal", "line": line})
            self.journal += 1


def _write_lines(file: Any, lines: _Lines, secrets: Mapping[str, str]) -> Written:
    digest = hashlib.sha256()
    count = 0
    compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    with compressor.stream_writer(file, closefd=False) as out:
        for line in lines:
            for name, secret in secrets.items():
                if secret in line:
                    raise UsageError(
                        f"line {count + 1} of the cassette would hold the value of {name}: "
                        "nothing was written; find it with 'show' and record the run without it"
                    )
            data = f"{line}\n".encode()
            lines.require_readable(data)
            digest.update(data)
            out.write(data)
            count += 1
        end = {"kind": "end", "lines": count, "sha256": digest.hexdigest()}
        out.write(f"{canonical_json(end)}\n".encode())
    return Written(
        content=digest.hexdigest(),
        answers=lines.answers,
        journal=lines.journal,
        size=file.tell(),
        new=True,
    )


def _placed(fresh: Path, path: Path, done: Written, *, force: bool) -> Written:
    if path.exists() and not force:
        if path.is_file() and path.read_bytes() == fresh.read_bytes():
            return Written(**{**vars(done), "new": False})
        raise UsageError(f"{path} is there and holds something else: --force replaces it")
    # A temporary file is its maker's alone; a cassette is to be read by others.
    fresh.chmod(0o644)
    fresh.replace(path)
    return done


# -------------------------------------------------------------------------------------- reading


def items(path: Path, *, limits: Limits = LIMITS) -> Iterator[Item]:
    """Yield what a cassette holds, in order, line by line.

    That it is whole and unchanged is known when the last item was taken: until then nothing that
    was yielded may be believed, and an answer's key may have been made up.

    Raises:
        DataError: It is missing, cut, changed, out of order, over a limit, of another format, or
            holds a line that is not written as ours are.
    """
    digest = hashlib.sha256()
    order = _Order(path, limits)
    number = 0
    for number, data in enumerate(_raw_lines(path, limits), start=1):
        if number > limits.lines:
            raise DataError(f"cassette {path} has more than {limits.lines} lines: nobody made that")
        if order.ended:
            raise DataError(f"cassette {path} goes on after its end, in line {number}")
        document = _document(path, number, data)
        if document.get("kind") == "end":
            _check_end(path, document, lines=number - 1, sha256=digest.hexdigest())
            order.ended = True
            continue
        digest.update(data)
        digest.update(b"\n")
        yield order.checked(_item(path, number, document), number)
    if not order.ended:
        # A cut in its first block leaves no line at all, and is a cut all the same.
        said = "cut short" if number or path.stat().st_size else "empty"
        raise DataError(f"cassette {path} is {said}: fetch it again")


@dataclass
class _Order:
    """Hold a cassette to its order: manifest, answers by key, journal."""

    path: Path
    limits: Limits
    last: Item | None = None
    journal: int = 0
    ended: bool = False

    def checked(self, item: Item, number: int) -> Item:
        before, self.last = self.last, item
        if isinstance(item, Head) != (before is None):
            raise DataError(f"cassette {self.path} has no manifest in line 1, or one elsewhere")
        if isinstance(item, CacheRecord) and (
            isinstance(before, JournalLine)
            or (isinstance(before, CacheRecord) and before.key >= item.key)
        ):
            raise DataError(f"cassette {self.path} has line {number} out of order, or twice")
        if isinstance(item, JournalLine):
            self.journal += len(item.text)
            if self.journal > self.limits.journal:
                raise DataError(f"cassette {self.path} has a journal over {self.limits.journal}")
        return item


def _raw_lines(path: Path, limits: Limits) -> Iterator[bytes]:
    if not path.is_file():
        raise DataError(f"no cassette at {path}: check the path")
    try:
        with open_named(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limits.compressed:
                raise DataError(f"cassette {path} has {size} bytes, over {limits.compressed}")
            most = min(limits.uncompressed, max(_RATIO_FROM, size * limits.ratio))
            yield from _split(path, _decompressed(file, limits), most=most, line=limits.line)
    except (OSError, zstandard.ZstdError) as error:
        raise DataError(f"cassette {path} cannot be read: {error}") from error


def _decompressed(file: BinaryIO, limits: Limits) -> Iterator[bytes]:
    reader = zstandard.ZstdDecompressor(max_window_size=limits.window).stream_reader(
        file, read_across_frames=True, closefd=False
    )
    while chunk := reader.read(_CHUNK):
        yield chunk


def _split(path: Path, chunks: Iterable[bytes], *, most: int, line: int) -> Iterator[bytes]:
    held = bytearray()
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > most:
            raise DataError(f"cassette {path} unpacks to more than {most} bytes: nobody made that")
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            held += part
            if len(held) > line:
                raise DataError(f"cassette {path} has a line of more than {line} bytes")
            yield bytes(held)
            held.clear()
        held += rest
        if len(held) > line:
            raise DataError(f"cassette {path} has a line of more than {line} bytes")
    if held:
        raise DataError(f"cassette {path} is cut short: fetch it again")


def _document(path: Path, number: int, data: bytes) -> dict[str, Any]:
    try:
        return canonical_object(data.decode())
    except ValueError as error:
        said = "is no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise DataError(f"cassette {path}: line {number} {said}") from error


def _check_end(path: Path, document: Mapping[str, Any], *, lines: int, sha256: str) -> None:
    if document.get("lines") != lines:
        raise DataError(f"cassette {path} is cut short: fetch it again")
    if document != {"kind": "end", "lines": lines, "sha256": sha256}:
        raise DataError(
            f"cassette {path} was changed: its lines hash to {sha256}, and its end says otherwise"
        )


def _item(path: Path, number: int, document: Mapping[str, Any]) -> Item:
    names = sorted(document)
    kind = document.get("kind")
    if kind == "manifest" and document.get("format") != CASSETTE_FORMAT:
        raise DataError(
            f"cassette {path} has another format than {CASSETTE_FORMAT}, which this version reads: "
            "use the version that wrote it"
        )
    if names == ["format", "kind", "manifest"] and isinstance(document["manifest"], dict):
        return Head(manifest=document["manifest"])
    if names == ["about", "kind", "reply", "request"] and kind == "answer":
        return _answer(path, number, document)
    if names == ["kind", "line"] and kind == "journal" and isinstance(document["line"], str):
        return JournalLine(text=document["line"])
    raise DataError(f"cassette {path}: line {number} is of a kind that we do not write")


def _answer(path: Path, number: int, document: Mapping[str, Any]) -> CacheRecord:
    text = "\n".join(canonical_text(document[name]) for name in ("about", "reply", "request"))
    about = document["about"]
    key = about.get("key") if isinstance(about, dict) else None
    try:
        record = record_of(str(key), text)
        _RECORD.validate_json(orjson.dumps(record), strict=True)
        if record_text(record) != text:
            raise ValueError("it has a field that we do not write")
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise DataError(
            f"cassette {path}: the answer in line {number} is damaged: {where} has another form"
        ) from error
    except ValueError as error:
        raise DataError(
            f"cassette {path}: the answer in line {number} is damaged: {str(error)[:200]}"
        ) from error
    return record
