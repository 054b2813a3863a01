"""Work that one process does while all others wait: fetching jars, installing a tool. MirrorMaker 2 has no counterpart.

Several checkouts may run their tests at the same time on one machine; a lock file serialises this work.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory that all checkouts of one user share; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mm2py"


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Lock the file at ``path``, after waiting until it is free. The lock ends with its process, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def directory_made_once(path: Path, fill: Callable[[Path], None]) -> Path:
    """Return ``path``; if it does not exist, fill it first.

    Args:
        path: the directory; an existing one is complete and is never changed again.
        fill: writes the contents into the empty directory it is given; it runs in one process at a time.
    Raises:
        Whatever ``fill`` raises; nothing half-done stays behind.
    """
    if path.is_dir():
        return path
    with lock(path.with_name(f"{path.name}.lock")):
        if path.is_dir():
            return path
        for abandoned in path.parent.glob(f"{path.name}.draft-*"):  # its maker was killed: no process holds the lock
            shutil.rmtree(abandoned, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{path.name}.draft-"))
        try:
            fill(draft)
            draft.chmod(0o755)
            draft.rename(path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return path
