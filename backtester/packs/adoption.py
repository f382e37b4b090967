"""Take a packed run into a workspace, as if it had been recorded there.

Afterwards every command knows it: ``show``, ``sql``, ``transcript``, ``replay``, ``leakcheck``.
Nothing is put into place before all of the cassette was found whole.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backtester.errors import DataError, UsageError
from backtester.packs.packs import LaidDown, lay_down
from backtester.publication import Publisher, read_whole
from backtester.replies.cache import ReplyCache
from backtester.replies.recordings import Unpacked, unpack
from backtester.runs.folder import RunFolder, RunManifest
from backtester.snapshots.snapshot import find_snapshot_by_id, open_snapshot
from backtester.walk.plan import cache_folder

REAL_MODEL_PACK: Final = "smollm2-2018.jsonl.zst"


@dataclass(frozen=True, kw_only=True)
class Adopted:
    """Say what was taken over.

    Attributes:
        folder: The run's folder in the workspace.
        answers: Answers added to its cache, and those that were there.
        fresh: Whether the run was not there before.
    """

    folder: RunFolder
    answers: Unpacked
    fresh: bool


def adopt(path: Path, *, data_dir: Path, reports_dir: Path) -> Adopted:
    """Put a cassette's answers into the cache and its run among the runs, and publish it.

    Args:
        path: The cassette.
        data_dir: Folder of snapshots and cache.
        reports_dir: Folder of runs.

    Raises:
        DataError: The cassette is damaged, its snapshot is not there, or the cache holds another
            reply under one of its keys.
        UsageError: Another process holds the run, or a run with this id and another root is there.
    """
    with tempfile.TemporaryDirectory(prefix="adoption-") as place:
        laid = lay_down(path, Path(place))
        manifest = _settled_here(laid.manifest, data_dir)
        folder = RunFolder(reports_dir / manifest.run_id)
        fresh = _is_fresh(folder, manifest)
        answers = unpack(path, ReplyCache.open(cache_folder(data_dir)))
        if fresh:
            _move_in(laid, folder, manifest)
    held = folder.read_manifest()
    Publisher(reports_dir, folder, read_whole(folder, held)).unless_there(held)
    return Adopted(folder=folder, answers=answers, fresh=fresh)


def _settled_here(manifest: RunManifest, data_dir: Path) -> RunManifest:
    """Return the manifest with the snapshot under the name or folder that it has here."""
    found = find_snapshot_by_id(manifest.snapshot_id, data_dir)
    try:
        same = open_snapshot(manifest.snapshot_name, data_dir).id == manifest.snapshot_id
    except DataError:
        same = False
    named = manifest.snapshot_name if same else str(found.absolute())
    return manifest.model_copy(update={"config": {**manifest.config, "snapshot": named}})


def _is_fresh(folder: RunFolder, manifest: RunManifest) -> bool:
    if not folder.manifest_path.exists():
        return True
    held = folder.read_manifest()
    if held.results_root == manifest.results_root:
        return False
    raise UsageError(
        f"{folder.path} is there already, {held.status}, with another results root than the "
        "cassette: name another --reports-dir"
    )


def _move_in(laid: LaidDown, folder: RunFolder, manifest: RunManifest) -> None:
    folder.create()
    with folder.lock():
        # The manifest comes last: without it the folder is no run yet, and the next try goes on.
        shutil.copyfile(laid.folder.journal_path, folder.journal_path)
        folder.write_manifest(manifest)


def real_model_pack() -> Path:
    """Return the packed run of a real language model that comes with the product.

    Raises:
        DataError: It is neither in the package nor in the checkout.
    """
    package = Path(__file__).parents[1]
    places = (package / "_packaged" / "cassettes", package.parent / "cassettes")
    for place in places:
        if (place / REAL_MODEL_PACK).is_file():
            return place / REAL_MODEL_PACK
    raise DataError(
        f"{REAL_MODEL_PACK} is not there: 'make record-demo' in a checkout of the project makes it"
    )
