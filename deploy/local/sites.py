"""Several data centres on one machine: a network for each, long links between every two, and a place near all of them.

    with LinkedSites({("west", "east"): 40, ("east", "north"): 120, ("west", "north"): 80}) as sites:
        west = KafkaCluster("west-1", network=sites.place("west"))
        sites.cut_off("west")
        sites.bring_back("west")

It takes root, ``ip`` and Go, like ``bench/wan/rig.py``, which has two places and one link. MirrorMaker 2 has no
counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from bench.wan.link import BOTH_WAYS, Link
from bench.wan.relay import Relay, relay_program
from deploy.local.network import Namespace

NEAR: Final = "near"


class LinkedSites:
    """Networks that reach each other over links, each with its own delay; ``near`` reaches all without delay.

    Args:
        round_trips_ms: for each pair of sites how long a packet takes there and back.
    Raises:
        MissingTool: ``ip`` or Go is missing.
        NoNamespaces: this needs root.
    """

    def __init__(self, round_trips_ms: Mapping[tuple[str, str], float]) -> None:
        relay_program()
        self.names = tuple(dict.fromkeys(name for pair in round_trips_ms for name in pair))
        self._places: dict[str, Namespace] = {}
        self._relays: dict[tuple[str, str], Relay] = {}
        try:
            for number, name in enumerate((NEAR, *self.names)):
                self._places[name] = Namespace(f"10.78.{number}.1")
            for name in self.names:
                self.near.wire(self._places[name], name)
            for pair, round_trip_ms in round_trips_ms.items():
                self._relays[pair] = self._link(pair, Link(round_trip_ms=round_trip_ms))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def near(self) -> Namespace:
        """A place with a wire to every site, which no outage cuts: for clients beside a site, and for the checker."""
        return self._places[NEAR]

    def place(self, name: str) -> Namespace:
        """Return the network of a site."""
        return self._places[name]

    def cut_off(self, name: str) -> None:
        """Drop every packet between this site and the others, also those under way. Nobody is told: packets vanish."""
        for relay in self._relays_of(name):
            relay.change(cut=BOTH_WAYS)

    def bring_back(self, name: str) -> None:
        """Let packets between this site and the others pass again."""
        for relay in self._relays_of(name):
            relay.change(cut=frozenset())

    def close(self) -> None:
        """End the links, and release the networks. A second call does nothing."""
        for relay in self._relays.values():
            relay.close()
        for place in self._places.values():
            place.close()

    def _link(self, pair: tuple[str, str], link: Link) -> Relay:
        one, other = (self._places[name] for name in pair)
        devices = one.tun(f"to-{pair[1]}", link.packet_bytes), other.tun(f"to-{pair[0]}", link.packet_bytes)
        one.route(other.address, f"to-{pair[1]}")
        other.route(one.address, f"to-{pair[0]}")
        return Relay(link, devices)

    def _relays_of(self, name: str) -> list[Relay]:
        return [relay for pair, relay in self._relays.items() if name in pair]
