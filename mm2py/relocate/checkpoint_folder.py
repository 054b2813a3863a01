"""A Spark checkpoint on disk: which batches it has, and a copy of it with other offsets. The checkpoint never changes.

The copy has the files ``offsets/N`` and ``commits/N`` of the batches that Spark needs, and all other files as they are:
the state, the id of the query, and what is kept for sources. Older batches are left out: they have offsets of the
cluster that was left, and a query whose newest batches were deleted by hand would go on there. Hadoop's checksum files
of ``offsets`` are left out too, because the content is another one; Hadoop reads a file without one.

MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mm2py.errors import ConfigError, Mm2Error
from mm2py.relocate.spark_layout import KeptBatches, PlannedBatch, kept_batches, read_batch

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
ORIGIN: Final = "mm2py-relocated.json"
"""In a copy: which cluster its offsets belong to. Spark passes over it."""

FileStamps = Mapping[str, tuple[int, int]]
"""Size and time of change, in ns, of each file by its path in the folder."""


class CheckpointChanged(Mm2Error):
    """The checkpoint was written to while it was copied."""


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """What was read of a checkpoint."""

    folder: Path
    stamps: FileStamps
    batches: KeptBatches
    content: Mapping[int, PlannedBatch]
    """The batches in ``batches`` by number."""
    cluster: str
    """The alias of the cluster to which it was relocated before; empty: it never was."""

    @property
    def newest_ms(self) -> int:
        """When a file in it was changed last."""
        return max(changed for _, changed in self.stamps.values()) // 1_000_000


def read_checkpoint(folder: Path) -> SparkCheckpoint:
    """Read a checkpoint.

    Raises:
        ConfigError: the folder cannot be read, or is no checkpoint.
        CheckpointRefused: see ``kept_batches`` and ``read_batch``.
    """
    if not (folder / OFFSETS).is_dir():
        raise ConfigError(
            f"{folder} is no checkpoint of Spark on this machine: it has no folder {OFFSETS}.",
            remedy="Name the checkpointLocation of a query. From a remote file system, copy it here, and back later.",
        )
    try:
        stamps = _stamps(folder)
        batches = kept_batches(_numbers(folder / OFFSETS), _numbers(folder / COMMITS))
        asked = (batches.before, *batches.counted)
        texts = {number: (folder / OFFSETS / str(number)).read_text() for number in asked if number is not None}
        origin = folder / ORIGIN
        cluster = str(json.loads(origin.read_text())["cluster"]) if origin.exists() else ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder} cannot be read: {error}.", remedy="Check the folder and its rights.") from error
    content = {number: read_batch(number, text) for number, text in texts.items()}
    return SparkCheckpoint(folder, stamps, batches, content, cluster)


def check_free(checkpoint: SparkCheckpoint, new: Path) -> None:
    """Check that a copy can be made beside a checkpoint. Raises: ConfigError."""
    if new.resolve().is_relative_to(checkpoint.folder.resolve()):
        raise ConfigError(f"{new} is inside the checkpoint.", remedy="Name a folder beside it: --to DIR.")
    if new.exists() or new.is_symlink():
        raise ConfigError(f"{new} exists.", remedy="Name a folder that does not exist: --to DIR.")
    if not new.parent.is_dir():
        raise ConfigError(f"{new.parent} is no folder.", remedy="Create it, or name another one: --to DIR.")


def write_relocated(checkpoint: SparkCheckpoint, new: Path, batches: Sequence[PlannedBatch], cluster: str) -> None:
    """Make the copy. It appears all at once; after an error there is nothing.

    Args:
        batches: the content of ``offsets`` in the copy.
        cluster: to which the offsets belong.
    Raises:
        CheckpointChanged: the checkpoint has changed since it was read.
        ConfigError: the disk refuses.
    """
    folder, kept = checkpoint.folder, {str(batch.number) for batch in batches}

    def left_out(at: str, names: list[str]) -> Collection[str]:
        if Path(at) == folder:
            return {ORIGIN} & set(names)
        if Path(at) == folder / OFFSETS:
            return names
        if Path(at) == folder / COMMITS:
            return [name for name in names if name.removeprefix(".").removesuffix(".crc") not in kept]
        return ()

    try:
        check_free(checkpoint, new)
        draft = Path(tempfile.mkdtemp(prefix=f".{new.name}.", dir=new.parent))
        try:
            shutil.copytree(folder, draft, ignore=left_out, dirs_exist_ok=True)
            for batch in batches:
                (draft / OFFSETS / str(batch.number)).write_text(batch.text())
            (draft / ORIGIN).write_text(json.dumps({"cluster": cluster, "from": str(folder)}))
            if _stamps(folder) != checkpoint.stamps:
                raise CheckpointChanged(
                    f"{folder} has changed since it was read: the query runs. Nothing was written.",
                    remedy="Stop the query, and ask again.",
                )
            draft.rename(new)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise ConfigError(
            f"{new} cannot be written: {error}.", remedy="Check the rights and the room there."
        ) from error


def _stamps(folder: Path) -> FileStamps:
    found: dict[str, tuple[int, int]] = {}
    for at, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(at, name)
            stat = path.stat()
            found[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns)
    return found


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(name) for name in os.listdir(folder) if name.isascii() and name.isdecimal()]
