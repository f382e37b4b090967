"""Take cassettes apart and put them together again, rightly or wrongly sealed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import zstandard


def lines_of(path: Path) -> list[str]:
    """Return the uncompressed lines of a cassette."""
    with path.open("rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    return data.decode().splitlines()


def compress(data: bytes) -> bytes:
    """Return bytes as a cassette holds them."""
    return zstandard.ZstdCompressor().compress(data)


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    """Write lines as they are, with whatever seal they bear."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def sealed(lines: Sequence[str]) -> list[str]:
    """Return lines without their old end and with one that counts and hashes them."""
    kept = [line for line in lines if not line.startswith('{"kind":"end"')]
    data = "".join(f"{line}\n" for line in kept).encode(errors="surrogatepass")
    end = {"kind": "end", "lines": len(kept), "sha256": hashlib.sha256(data).hexdigest()}
    return [*kept, canonical(end)]


def canonical(value: object) -> str:
    """Return a value as one line of a cassette."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def edit_head(path: Path, to: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """Write a cassette with another manifest, rightly sealed.

    The run id is made to fit the identity again, as a forger would.
    """
    lines = lines_of(path)
    head = json.loads(lines[0])
    edit(head["manifest"])
    refit_run_id(head["manifest"])
    return write_lines(to, sealed([canonical(head), *lines[1:]]))


def refit_run_id(manifest: dict[str, Any]) -> None:
    """Give a manifest the run id that its identity leads to, where it still has both."""
    name, identity = manifest.get("run_id"), manifest.get("identity")
    if isinstance(name, str) and isinstance(identity, dict):
        digest = hashlib.sha256(canonical(identity).encode()).hexdigest()[:12]
        manifest["run_id"] = f"{name.rpartition('-')[0]}-{digest}"
