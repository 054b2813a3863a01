"""The link is what was asked for: delay, rate, queue, loss, and cuts. Bounds are wide: the machine is busy."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from bench.wan.link import Link, Way
from bench.wan.rig import Rig
from deploy.local.network import Namespace
from tests.cluster.running import DEADLINE_S, PATIENCE, wait_until

PORT = 5_000
SO_RCVBUFFORCE = 33
MakeRig = Callable[[Link], Rig]


def datagrams(place: Namespace) -> socket.socket:
    """Return a socket with room for all that a test sends."""
    with place.entered():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)  # also beyond net.core.rmem_max
        made.bind((place.address, PORT))
    made.settimeout(DEADLINE_S)
    return made


def send_all(rig: Rig, count: int, size: int = 100) -> None:
    """Send so many datagrams from the source, and wait until the link has settled each."""
    before = rig.counts()[Way.FROM_SOURCE]
    with datagrams(rig.source) as sender:
        for number in range(count):
            sender.sendto(number.to_bytes(4, "big").ljust(size, b"."), (rig.target.address, PORT))

    def settled() -> bool:
        now = rig.counts()[Way.FROM_SOURCE]
        return (
            sum((now.passed, now.lost, now.overflowed, now.cut))
            - sum((before.passed, before.lost, before.overflowed, before.cut))
            >= count
        )

    wait_until(settled, "every datagram is settled")


def arrived(receiver: socket.socket) -> list[int]:
    """Return the numbers of the datagrams that are there."""
    numbers = []
    receiver.setblocking(False)
    while True:
        try:
            numbers.append(int.from_bytes(receiver.recv(4096)[:4], "big"))
        except BlockingIOError:
            return numbers


def test_a_packet_takes_half_a_round_trip_each_way(make_rig: MakeRig) -> None:
    rig = make_rig(Link(round_trip_ms=100))
    with datagrams(rig.source) as asks, datagrams(rig.target) as answers:
        took_s = []
        for _ in range(5):
            asked_s = time.monotonic()
            asks.sendto(b"?", (rig.target.address, PORT))
            answers.recv(10)
            half_s = time.monotonic() - asked_s
            answers.sendto(b"!", (rig.source.address, PORT))
            asks.recv(10)
            took_s.append((half_s, time.monotonic() - asked_s))
    assert all(half_s >= 0.05 and whole_s >= 0.1 for half_s, whole_s in took_s), took_s
    assert min(whole_s for _, whole_s in took_s) < 1 * PATIENCE, took_s


def test_a_link_carries_its_rate_and_no_more(make_rig: MakeRig) -> None:
    rig = make_rig(Link(round_trip_ms=10, megabits_per_s=40))
    sent = 5_000_000
    with rig.target.entered():
        server = socket.create_server((rig.target.address, PORT))
    with server, rig.source.entered():
        started_s = time.monotonic()
        sender = socket.create_connection((rig.target.address, PORT), DEADLINE_S)
        receiver, _ = server.accept()
        receiver.settimeout(DEADLINE_S)
        sending = threading.Thread(target=sender.sendall, args=(bytes(sent),))
        sending.start()
        got = 0
        while got < sent:
            got += len(receiver.recv(1 << 20))
        took_s = time.monotonic() - started_s
        sending.join()
        sender.close()
        receiver.close()
    assert 0.98 <= took_s < 20 * PATIENCE, took_s  # 40 million bits at 40 million a second


def test_what_does_not_fit_into_the_queue_is_dropped(make_rig: MakeRig) -> None:
    rig = make_rig(Link(megabits_per_s=0.4, queue_bytes=20_000))
    with datagrams(rig.target) as receiver:
        send_all(rig, 100, size=972)  # 1,000 bytes with the headers, 20 ms each: far more than the link takes meanwhile
        counts = rig.counts()[Way.FROM_SOURCE]
        assert arrived(receiver)[:20] == list(range(20))
    assert counts.passed >= 20
    assert counts.overflowed > 0
    assert counts.passed + counts.overflowed == 100


def test_the_seed_chooses_what_gets_lost(make_rig: MakeRig) -> None:
    seen = []
    for seed in (1, 1, 2):
        rig = make_rig(Link(loss=0.2, jitter_ms=2, seed=seed))
        with datagrams(rig.target) as receiver:
            send_all(rig, 1_000)
            seen.append(arrived(receiver))
        rig.close()
    assert 600 < len(seen[0]) < 950
    assert seen[0] == seen[1] != seen[2]
    assert seen[0] == sorted(seen[0]), "packets keep their order"


def test_some_packets_are_overtaken_and_some_come_twice(make_rig: MakeRig) -> None:
    rig = make_rig(Link(round_trip_ms=20, overtaken=0.1, twice=0.1))
    with datagrams(rig.target) as receiver:
        send_all(rig, 1_000)
        wait_until(lambda: rig.counts()[Way.FROM_SOURCE].passed > 1_000, "some came twice")
        seen: list[int] = []

        def all_came() -> bool:
            seen.extend(arrived(receiver))
            return set(seen) == set(range(1_000))

        wait_until(all_came, "all came")
    assert seen != sorted(seen)
    assert 1_010 < len(seen) < 1_500


def test_a_cut_direction_passes_nothing_until_it_is_restored(make_rig: MakeRig) -> None:
    rig = make_rig(Link())
    with datagrams(rig.target) as receiver:
        rig.cut(frozenset({Way.FROM_SOURCE}))
        send_all(rig, 10)
        assert arrived(receiver) == []
        with datagrams(rig.source) as other:
            receiver.sendto(b"!", (rig.source.address, PORT))
            other.settimeout(DEADLINE_S)
            assert other.recv(10) == b"!", "the other direction passes"
        rig.restore()
        send_all(rig, 10)
        receiver.settimeout(DEADLINE_S)
        assert arrived(receiver) == list(range(10))
