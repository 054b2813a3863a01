"""The process that carries packets between two TUN devices: ``relay.go``, built once for all checkouts."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Final

from bench.wan.link import Counts, Link, Way, counts_of, relay_line
from deploy.local.errors import MissingTool, StarterError
from deploy.local.guardian import guard
from deploy.local.once import cache_directory, directory_made_once

SOURCE: Final = Path(__file__).with_name("relay.go")
BUILD_S: Final = 300.0


def relay_program() -> Path:
    """Return the compiled relay.

    Raises:
        MissingTool: Go is missing, or the build failed.
    """
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    return directory_made_once(cache_directory() / f"wan-relay-{digest}", _build) / "relay"


class Relay:
    """A running relay, which owns both devices.

    Args:
        devices: the file descriptors of the TUN devices of the source and of the target.
    """

    def __init__(self, link: Link, devices: tuple[int, int]) -> None:
        self.link = link
        self.cut: frozenset[Way] = frozenset()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [str(relay_program()), str(link.seed), *map(str, devices)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=devices,
            env={**os.environ, **guard().environment()},
            start_new_session=True,
        )
        for device in devices:
            os.close(device)
        self.counts()

    def change(self, link: Link | None = None, *, cut: frozenset[Way] | None = None) -> None:
        """Behave like another link from now on, or cut other directions. Packets under way keep their times."""
        self.link = self.link if link is None else link
        self.cut = self.cut if cut is None else cut
        self.counts()

    def counts(self) -> dict[Way, Counts]:
        """Return the packets so far, by direction.

        Raises:
            StarterError: the relay has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(relay_line(self.link, self.cut) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                answer = ""
            else:
                answer = self._process.stdout.readline()
        if not answer:
            raise StarterError("The relay of the link has ended.", remedy="Its reason stands above.")
        return counts_of(answer)

    def close(self) -> None:
        """End the relay. A second call does nothing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _build(draft: Path) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise MissingTool("There is no Go to build the link's relay with.", remedy="Install it: apt-get install golang")
    done = subprocess.run(
        [go, "build", "-o", str(draft / "relay"), str(SOURCE)],
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    if done.returncode:
        raise MissingTool(f"go build failed: {done.stderr.strip()[-500:]}", remedy="It takes Go 1.22 or later.")
