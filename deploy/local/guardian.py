"""The guardian: a small process that ends the servers of a dead starter, and removes their directories.

MirrorMaker 2 has no counterpart. A test run that is SIGKILLed runs no ``finally`` and no ``atexit``, so the clean-up
runs in a process of its own. It reads the names of directories from a pipe of which the starter has the other end; when
that pipe ends for any reason, it cleans up. It finds servers by a token in their environment and not by process id, so
it also finds a server that was started an instant before the starter died. (The kernel's own death signal is no
substitute: it fires when the *thread* that started a server ends.)
"""

import atexit
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MARK = "MM2PY_STARTER"
LONGEST_CLEANUP_S = 20.0


class Guard:
    """The starter's end of the pipe. One for each process, made with the first server; see ``guard()``."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self.token],
            # A demo that a test starts has the test's mark. The test's guardian must not end that of the demo with it.
            env={name: value for name, value in os.environ.items() if name != MARK},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C in a terminal goes to the starter, which decides what ends when
        )
        atexit.register(self.close)

    def environment(self) -> dict[str, str]:
        """Return the variables that mark a server as ours."""
        return {MARK: self.token}

    def new_directory(self, name: str) -> Path:
        """Return a new temporary directory that lasts until ``remove_directory`` or the end of this process."""
        directory = Path(tempfile.mkdtemp(prefix=f"mm2py-{name}-"))
        assert self._guardian.stdin is not None  # noqa: S101
        with self._lock:
            self._guardian.stdin.write(f"{directory}\n".encode())
            self._guardian.stdin.flush()
        return directory

    def remove_directory(self, directory: Path) -> None:
        """Remove a directory; the guardian ignores a missing one."""
        shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Make the guardian clean up everything, and wait for it. In a forked child this does nothing."""
        if os.getpid() == self.owner and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            self._guardian.wait()


_guard: Guard | None = None
_guard_lock = threading.Lock()


def guard() -> Guard:
    """Return this process's guard; a forked child gets its own."""
    global _guard  # noqa: PLW0603
    with _guard_lock:
        if _guard is None or _guard.owner != os.getpid():
            _guard = Guard()
        return _guard


def processes_with(token: str) -> list[int]:
    """Return the ids of living processes whose environment carries the token."""
    wanted = f"{MARK}={token}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/environ", "rb") as environ:
                    if wanted in environ.read().split(b"\0"):
                        found.append(int(entry.name))
            except OSError:
                continue  # it ended meanwhile, or belongs to another user
    return found


def _clean_up(token: str, directories: list[str]) -> None:
    deadline_s = time.monotonic() + LONGEST_CLEANUP_S
    while (living := processes_with(token)) and time.monotonic() < deadline_s:
        for process_id in living:
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def main(token: str) -> None:
    """Wait for the end of the pipe, then clean up."""
    for polite in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            polite, signal.SIG_IGN
        )  # a signal that ends a whole process group ends the starter too, and then the pipe ends
    directories = [line.rstrip("\n") for line in sys.stdin]
    _clean_up(token, directories)


if __name__ == "__main__":
    main(sys.argv[1])
