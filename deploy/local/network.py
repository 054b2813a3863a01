"""Network namespaces without names: each lasts as long as this process or a process that was started in it.

    with Namespace("10.77.1.1") as west, west.entered():
        subprocess.Popen(...)  # lives in that namespace

The kernel keeps a namespace for each thread, and what a thread starts (threads, processes, sockets) is in its
namespace. So nothing here changes the network of the machine. MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, Self

from deploy.local.errors import MissingTool, StarterError

OWN_NAMESPACE: Final = "/proc/thread-self/ns/net"
_CLONE_NEWNET: Final = 0x4000_0000
_TUNSETIFF: Final = 0x4004_54CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_IFF_VNET_HDR: Final = 0x4000
_libc: Final = ctypes.CDLL(None, use_errno=True)


class NoNamespaces(StarterError):
    """This machine or this user cannot have network namespaces."""


class Namespace:
    """A network of its own, with one address on its loopback device."""

    def __init__(self, address: str) -> None:
        """Make the namespace.

        Raises:
            NoNamespaces: the user is not root, or the kernel has no namespaces.
            MissingTool: there is no ``ip``.
        """
        if shutil.which("ip") is None:
            raise MissingTool("There is no command ip.", remedy="Install it: apt-get install iproute2")
        self.address = address
        before = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _libc.unshare(_CLONE_NEWNET):
                reason = os.strerror(ctypes.get_errno())
                raise NoNamespaces(f"No network namespace could be made: {reason}.", remedy="Run it as root.")
            try:
                self._file = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
                for which in ("all", "default"):
                    with suppress(OSError):  # a kernel without IPv6 has none of its packets on the link either
                        Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")
            finally:
                _enter(before)
        finally:
            os.close(before)
        self.ip("link", "set", "lo", "up")
        self.ip("address", "add", f"{address}/32", "dev", "lo")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put this thread, and everything that it starts meanwhile, into the namespace."""
        before = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(self._file)
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(before)

    def ip(self, *arguments: str) -> None:
        """Run the command ``ip`` in the namespace."""
        with self.entered():
            done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise NoNamespaces(f"ip {' '.join(arguments)}: {done.stderr.strip()}.", remedy="Run it as root.")

    def tun(self, name: str, packet_bytes: int = 1500) -> int:
        """Make a TUN device and return its file. Reading the file returns packets routed to the device, one by one.

        Each packet follows ten bytes, the kernel's ``virtio_net_hdr``. ``packet_bytes`` is the device's MTU.
        """
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        try:
            with self.entered():
                device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
                fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        except OSError as error:
            raise NoNamespaces(f"No TUN device: {error.strerror}.", remedy="It takes root and /dev/net/tun.") from error
        self.ip("link", "set", name, "mtu", str(packet_bytes), "up", "txqueuelen", "10000")
        return device

    def wire(self, other: Namespace, name: str) -> None:
        """Connect this namespace to another one, without delay. Each then reaches the other's address."""
        far = f"/proc/{os.getpid()}/fd/{other._file}"
        self.ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "back", "netns", far)
        self.ip("link", "set", f"to-{name}", "up")
        other.ip("link", "set", "back", "up")
        self.route(other.address, f"to-{name}")
        other.route(self.address, "back")

    def route(self, address: str, device: str) -> None:
        """Send packets for that address through that device."""
        self.ip("route", "add", f"{address}/32", "dev", device, "src", self.address)

    def setting(self, name: str) -> str:
        """Return the value that a kernel setting under ``/proc/sys/net/ipv4`` has in this namespace."""
        with self.entered():
            return " ".join(Path("/proc/sys/net/ipv4", name).read_text().split())

    def close(self) -> None:
        """Release the namespace: it ends with the last process in it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def inside(network: Namespace | None) -> AbstractContextManager[None]:
    """Return a context in which this thread is in the network; with None it stays in its present network."""
    return nullcontext() if network is None else network.entered()


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        raise NoNamespaces(f"setns: {os.strerror(ctypes.get_errno())}.", remedy="Run it as root.")
