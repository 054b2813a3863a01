"""What can go wrong between a worker and its ZooKeeper, one class per reaction. No message holds a password."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from mm2py.config.kinds import HostPort
from mm2py.errors import ConfigError, Mm2Error

_ON: Final = "Nothing is lost meanwhile: whoever was not elected follows. mm2py keeps trying."


class KazooMissing(ConfigError):
    """The package that speaks to ZooKeeper is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "leader.election=zookeeper needs the package kazoo, which is not installed.",
            remedy="Install it with: pip install 'mm2py[zookeeper]'; or write leader.election = log.",
        )


class ElectionTroubled(Mm2Error):
    """No leader can be elected by us until something is mended outside."""

    retriable: ClassVar[bool] = True


class ZooKeeperUnreachable(ElectionTroubled):
    """No server of zookeeper.connect takes our session."""

    def __init__(self, servers: Sequence[HostPort], why: str, *, remedy: str = "") -> None:
        super().__init__(
            f"No ZooKeeper of zookeeper.connect ({shown(servers)}) answers: {why}.",
            remedy=f"{remedy or 'Start it, correct zookeeper.connect, or let mm2py through to it.'} {_ON}",
        )


class ChrootMissing(ElectionTroubled):
    """The chroot has to be made by whoever owns the ZooKeeper: a slip of the pen would make two groups of one."""

    def __init__(self, chroot: str) -> None:
        super().__init__(
            f"The chroot {chroot} of zookeeper.connect does not exist.",
            remedy=f"Create it (zkCli.sh create {chroot}), or correct zookeeper.connect. {_ON}",
        )


class ZooKeeperDenied(ElectionTroubled):
    """The ACL of a node does not let us do what an election needs."""

    def __init__(self, what: str, path: str, *, has_digest: bool) -> None:
        who = "the user of zookeeper.auth.digest" if has_digest else "a client without zookeeper.auth.digest"
        super().__init__(
            f"ZooKeeper does not let {who} {what} {path}: wrong user or password, or another's node.",
            remedy=(
                "Check zookeeper.auth.digest, which has to be the same for the whole group, and the node's ACL"
                f" (zkCli.sh getAcl {path}); or give the group a chroot of its own in zookeeper.connect. {_ON}"
            ),
        )


class ZooKeeperRefused(ElectionTroubled):
    """Anything else that ZooKeeper answers and an election cannot go on with."""

    def __init__(self, what: str, path: str, why: str) -> None:
        super().__init__(
            f"ZooKeeper does not {what} {path}: {why}.",
            remedy=f"Check that zookeeper.connect names a ZooKeeper 3.4 or later, and its log. {_ON}",
        )


def shown(servers: Sequence[HostPort]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)
