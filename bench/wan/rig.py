"""Two data centres on one machine, a long link between them, and a third place near both.

with Rig(Link(round_trip_ms=100, megabits_per_s=1000)) as rig:
    source = KafkaCluster("source", network=rig.source)
    target = KafkaCluster("target", network=rig.target)
    with start_clusters([source, target]), rig.near.entered():
        ...  # this thread reaches the brokers of both without delay
    with rig.target.entered():
        ...  # this thread, and a worker that it starts, reaches the source over the link
"""

from __future__ import annotations

from typing import Final, Self

from bench.wan.link import BOTH_WAYS, Counts, Link, Way
from bench.wan.relay import Relay, relay_program
from deploy.local.network import Namespace

SHOWN: Final = ("tcp_congestion_control", "tcp_rmem", "tcp_wmem")


class Rig:
    """Namespaces ``source`` and ``target``, joined by a link; ``near`` has a wire to both, for tests and load."""

    def __init__(self, link: Link) -> None:
        """Make the namespaces and start the link.

        Raises:
            MissingTool: ``ip`` or Go is missing.
            NoNamespaces: this needs root.
        """
        relay_program()
        self._places: list[Namespace] = []
        try:
            self.source, self.target, self.near = (self._place(number) for number in (1, 2, 3))
            self.near.wire(self.source, "source")
            self.near.wire(self.target, "target")
            devices = self.source.tun("wan", link.packet_bytes), self.target.tun("wan", link.packet_bytes)
            self.source.route(self.target.address, "wan")
            self.target.route(self.source.address, "wan")
            self._relay = Relay(link, devices)
        except BaseException:
            self._leave()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def link(self) -> Link:
        """The present description of the link."""
        return self._relay.link

    def change(self, link: Link) -> None:
        """Change the link; its seed stays that of the start."""
        self._relay.change(link)

    def cut(self, ways: frozenset[Way] = BOTH_WAYS) -> None:
        """Drop every packet of these directions, also those under way."""
        self._relay.change(cut=ways)

    def restore(self) -> None:
        """Let packets pass again."""
        self._relay.change(cut=frozenset())

    def counts(self) -> dict[Way, Counts]:
        """Return the packets so far, by direction."""
        return self._relay.counts()

    def settings(self) -> dict[str, str]:
        """Return the TCP settings in the namespaces, which are those of the machine."""
        return {name: self.target.setting(name) for name in SHOWN}

    def close(self) -> None:
        """End the link, and release the namespaces. A second call does nothing."""
        self._relay.close()
        self._leave()

    def _place(self, number: int) -> Namespace:
        place = Namespace(f"10.77.{number}.1")
        self._places.append(place)
        return place

    def _leave(self) -> None:
        for place in self._places:
            place.close()
