"""A worker in a network of its own: one cable to this machine, which can be pulled without either side being told.

with Cable() as cable, KafkaProxy(source.bootstrap, host=cable.here) as near:
    worker = Mm2py({..., "A.bootstrap.servers": near.bootstrap})  # started by cable.entered()
    cable.pull()
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from tests.cluster.kafka_client import new_name

_CLONE_NEWNET: Final = 0x40000000
_NAMESPACES: Final = Path("/run/netns")


class Cable:
    """A network namespace and its link to this machine, removed with the ``with`` block; skips where it is not allowed.

    Attributes:
        here: this machine's address at the link.
    """

    def __init__(self) -> None:
        number = os.getpid() % 250 + 1
        self.here = f"10.213.{number}.1"
        self._there = f"10.213.{number}.2"
        self._name = new_name("mm2py")[-12:]
        self._link = f"v{self._name}"[:14]

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self._name)
            try:
                _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._name)
                _ip("addr", "add", f"{self.here}/24", "dev", self._link)
                _ip("link", "set", self._link, "up")
                for words in (
                    ["addr", "add", f"{self._there}/24", "dev", "eth0"],
                    ["link", "set", "eth0", "up"],
                    ["link", "set", "lo", "up"],
                ):
                    _ip("-n", self._name, *words)
            except BaseException:
                self._remove()
                raise
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"") or str(error).encode()
            pytest.skip(f"this machine allows no network namespaces: {said.decode(errors='replace').strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread into the namespace while the ``with`` block lasts; processes started there stay there."""
        with open("/proc/thread-self/ns/net") as outside, (_NAMESPACES / self._name).open() as inside:
            _enter(inside.fileno())
            try:
                yield
            finally:
                _enter(outside.fileno())

    def pull(self) -> None:
        """Silently drop all packets."""
        _ip("link", "set", self._link, "down")

    def plug(self) -> None:
        """Pass all packets again."""
        _ip("link", "set", self._link, "up")

    def _remove(self) -> None:
        subprocess.run(["ip", "link", "del", self._link], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self._name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=True)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
