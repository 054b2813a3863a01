"""Election through real ZooKeepers: killed, frozen, without quorum, behind passwords and TLS (F65)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from deploy.local.certificates import Authority, write_private
from deploy.local.ports import HOST, lease_ports
from deploy.local.python_path import python_path
from deploy.local.zookeeper import ZooKeeper, ZooKeeperEnsemble
from mm2py.group.election.backend import CandidateState
from mm2py.group.election.zookeeper.election import ZooKeeperElection
from mm2py.kafka.security.settings import KeyStore, TlsSettings, TrustStore
from tests.cluster.candidate import candidate
from tests.cluster.running import ANSWER_S, PATIENCE, paused, within
from tests.cluster.running import until as ask_until

TIMEOUT_S = 2.0
"""Of sessions. A server with a tick of 500 ms grants it as it is."""
LONG_TIMEOUT_S = 10.0
"""The longest that such a server grants."""
LATER = 10 * PATIENCE
"""Deadlines are ten times what is promised: others use this machine too. What is promised is printed beside it."""
ROOT = Path(__file__).parents[3]
MAY_LEAD, SUSPENDED, LOST = CandidateState.MAY_LEAD, CandidateState.SUSPENDED, CandidateState.LOST
PASSWORD = "xyzzy-never-shown"  # noqa: S105


@pytest.fixture(scope="module")
def one_server() -> Iterator[ZooKeeper]:
    """A test leaves it running."""
    with ZooKeeper() as server:
        yield server


@asynccontextmanager
async def running(election: ZooKeeperElection) -> AsyncIterator[ZooKeeperElection]:
    task = asyncio.create_task(election.run())
    try:
        yield election
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()
        assert election.state is LOST


async def until(election: ZooKeeperElection, wanted: CandidateState, *, promised_s: float) -> None:
    """Wait for a state."""
    began_s = time.monotonic()
    async with within(promised_s * LATER):
        while (state := election.state) is not wanted:
            await election.changed(state)
    print(f"{wanted.name} after {time.monotonic() - began_s:.3f} s, promised {promised_s:.1f} s")


async def until_true(condition: Callable[[], bool], *, promised_s: float = 5.0) -> None:
    await ask_until(condition, "it comes true", deadline_s=promised_s * LATER)


def chroot_on(server: ZooKeeper | ZooKeeperEnsemble, name: str) -> str:
    """Make a chroot for one test, and return ``zookeeper.connect``."""
    with client_of(server.connect) as client:
        client.ensure_path(f"/{name}")
    return f"{server.connect}/{name}"


def as_one_of_three(connect: str) -> str:
    """Name two more servers, which are not there.

    A server that is just starting may take a connection and not answer on it. Such an attempt costs the session
    time-out divided by the number of servers: with one server the session itself.
    """
    server, _, chroot = connect.partition("/")
    port = server.rpartition(":")[2]
    return f"{server},127.0.0.2:{port},127.0.0.3:{port}/{chroot}"


@contextmanager
def client_of(connect: str) -> Iterator[KazooClient]:
    """A client of ours that says nothing: kazoo's own log shows passwords, and tests look for them."""
    client = KazooClient(connect, timeout=10.0, logger=logging.Logger("mute", level=logging.CRITICAL + 1))
    client.start(timeout=ANSWER_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class Watch:
    """Sees to it that no two may claim at once: whenever one is told that it may, and all the time between."""

    def __init__(self, *elections: ZooKeeperElection) -> None:
        self.leads: list[int] = []
        """Who was elected, in order."""
        self._elections = elections
        self._samples = 0

    def _check(self) -> None:
        leading = [at for at, election in enumerate(self._elections) if election.state is MAY_LEAD]
        assert len(leading) <= 1, f"{leading} may all claim"
        self._samples += 1

    async def _sample(self) -> None:
        while True:
            self._check()
            await paused(0.001, "it looks all the time")

    async def _follow(self, at: int) -> None:
        state = LOST
        while True:
            state = await self._elections[at].changed(state)
            self._check()
            if state is MAY_LEAD:
                self.leads.append(at)

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        follow = [self._follow(at) for at in range(len(self._elections))]
        tasks = [asyncio.create_task(checks) for checks in (self._sample(), *follow)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert [task.exception() for task in tasks if not task.cancelled()] == []
            print(f"{self._samples} samples, {len(self.leads)} elections")


def run(story: Awaitable[None]) -> None:
    async def told() -> None:
        await story

    asyncio.run(told())


async def test_the_next_in_line_is_elected_at_once_when_the_first_leaves(one_server: ZooKeeper) -> None:
    connect = chroot_on(one_server, "leaves")
    first, second = (candidate(connect, name, timeout_s=LONG_TIMEOUT_S) for name in ("w1", "w2"))
    async with Watch(first, second).on(), asyncio.TaskGroup() as tasks:
        leading = tasks.create_task(first.run())
        await until(first, MAY_LEAD, promised_s=1.0)
        assert first.evidence.startswith("zookeeper session 0x")
        following = tasks.create_task(second.run())
        await until_true(lambda: len(candidates(one_server, "leaves")) == 2)
        leading.cancel()
        async with within(LONG_TIMEOUT_S / 2):  # longer: it was not told, and looked by itself
            await until(second, MAY_LEAD, promised_s=0.5)
        assert first.state is LOST
        following.cancel()


async def test_a_worker_that_withdraws_comes_back_behind_the_others(one_server: ZooKeeper) -> None:
    """A worker that may claim but cannot write to the control log withdraws, so as not to block the others."""
    connect = chroot_on(one_server, "aside")
    first, second = (candidate(connect, name, timeout_s=TIMEOUT_S) for name in ("w1", "w2"))
    async with Watch(first, second).on():
        async with running(first):
            await until(first, MAY_LEAD, promised_s=1.0)
        async with running(second):
            await until(second, MAY_LEAD, promised_s=1.0)
            async with running(first):
                await until_true(lambda: len(candidates(one_server, "aside")) == 2)
                assert (first.state, second.state) == (LOST, MAY_LEAD)


async def test_a_killed_leader_is_followed_within_the_session_time_out(one_server: ZooKeeper) -> None:
    connect = chroot_on(one_server, "killed")
    with process(connect, "w1") as leader:
        await told(leader, "MAY_LEAD")
        async with running(candidate(connect, "w2", timeout_s=TIMEOUT_S)) as second:
            await paused(TIMEOUT_S, "a session could have expired by then")
            assert second.state is LOST
            killed_s = time.monotonic()
            leader.kill()
            # ZooKeeper looks for silent sessions once a tick, which is 0.5 s here.
            await until(second, MAY_LEAD, promised_s=TIMEOUT_S + 0.5)
            assert time.monotonic() - killed_s > TIMEOUT_S / 3, "a killed process said goodbye"


async def test_a_frozen_leader_that_wakes_does_not_lead_for_a_moment(one_server: ZooKeeper) -> None:
    connect = chroot_on(one_server, "frozen-leader")
    with process(connect, "w1") as leader:
        await told(leader, "MAY_LEAD")
        async with running(candidate(connect, "w2", timeout_s=TIMEOUT_S)) as second:
            await until_true(lambda: len(candidates(one_server, "frozen-leader")) == 2)
            os.kill(leader.pid, signal.SIGSTOP)
            await until(second, MAY_LEAD, promised_s=TIMEOUT_S + 0.5)
            os.kill(leader.pid, signal.SIGCONT)
            assert await told(leader) == "LOST"
            await paused(TIMEOUT_S, "so long what woke could have led")
            assert second.state is MAY_LEAD


async def test_a_killed_server_suspends_and_gives_back_what_nobody_took(one_server: ZooKeeper) -> None:
    connect = as_one_of_three(chroot_on(one_server, "restart"))
    # Longer than a JVM takes to start, so that the session survives.
    async with running(candidate(connect, "w1", timeout_s=LONG_TIMEOUT_S)) as first:
        await until(first, MAY_LEAD, promised_s=1.0)
        evidence = first.evidence
        one_server.kill()
        await until(first, SUSPENDED, promised_s=0.5)
        assert first.evidence == ""
        await asyncio.to_thread(one_server.start)
        await until(first, MAY_LEAD, promised_s=3.0)
        assert first.evidence == evidence


async def test_a_server_that_is_away_too_long_costs_the_leadership_until_it_is_back(one_server: ZooKeeper) -> None:
    connect = as_one_of_three(chroot_on(one_server, "away"))
    async with running(candidate(connect, "w1", timeout_s=LONG_TIMEOUT_S)) as first:
        await until(first, MAY_LEAD, promised_s=1.0)
        one_server.kill()
        killed_s = time.monotonic()
        await until(first, SUSPENDED, promised_s=0.5)
        await until(first, LOST, promised_s=LONG_TIMEOUT_S)
        assert time.monotonic() - killed_s > LONG_TIMEOUT_S / 2
        await until_true(lambda: first.blocked is not None)
        assert "zookeeper.connect" in str(first.blocked) and "Connection refused" in str(first.blocked)
        await asyncio.to_thread(one_server.start)
        async with within(LONG_TIMEOUT_S / 2):  # longer: it waited for its own earlier session to expire
            await until(first, MAY_LEAD, promised_s=0.5)
        assert first.blocked is None
        assert len(candidates(one_server, "away")) == 1


async def test_a_frozen_server_suspends_within_two_thirds_of_the_session_time_out(one_server: ZooKeeper) -> None:
    connect = chroot_on(one_server, "hangs")
    async with running(candidate(connect, "w1", timeout_s=TIMEOUT_S)) as first:
        await until(first, MAY_LEAD, promised_s=1.0)
        one_server.freeze()
        try:
            frozen_s = time.monotonic()
            async with within(TIMEOUT_S):  # longer: the session could have ended by then
                await until(first, SUSPENDED, promised_s=TIMEOUT_S * 2 / 3)
            await until(first, LOST, promised_s=TIMEOUT_S)
            print(f"LOST {time.monotonic() - frozen_s:.3f} s after the freeze")
        finally:
            one_server.thaw()
        await until(first, MAY_LEAD, promised_s=3.0)


async def test_a_node_that_an_operator_deletes_costs_the_leadership(one_server: ZooKeeper) -> None:
    connect = chroot_on(one_server, "deleted")
    async with running(candidate(connect, "w1", timeout_s=TIMEOUT_S)) as first:
        await until(first, MAY_LEAD, promised_s=1.0)
        evidence = first.evidence
        # Watched from before: it may be a candidate again, 50 ms later, before the client hears of its deletion.
        lost = asyncio.create_task(until(first, LOST, promised_s=TIMEOUT_S))
        with client_of(connect) as client:
            (name,) = client.get_children(first.path.removeprefix("/deleted"))
            await asyncio.to_thread(client.delete, f"{first.path.removeprefix('/deleted')}/{name}")
        await lost
        await until(first, MAY_LEAD, promised_s=1.0)
        assert first.evidence != evidence


async def test_of_many_candidates_one_leads_and_each_is_elected_in_its_turn(one_server: ZooKeeper) -> None:
    connect = chroot_on(one_server, "many")
    all_of_them = [candidate(connect, f"w{n}", timeout_s=TIMEOUT_S) for n in range(8)]
    watch = Watch(*all_of_them)
    async with watch.on(), asyncio.TaskGroup() as tasks:
        runs = {election: tasks.create_task(election.run()) for election in all_of_them}
        for _ in all_of_them:
            await until_true(lambda: any(election.state is MAY_LEAD for election in runs))
            leading = next(election for election in runs if election.state is MAY_LEAD)
            await paused(0.05, "it leads for a while")
            runs.pop(leading).cancel()
    assert sorted(watch.leads) == list(range(8))


@pytest.mark.slow
async def test_three_servers_outlive_the_loss_of_each() -> None:
    with ZooKeeperEnsemble() as ensemble:
        connect = chroot_on(ensemble, "three")

        async def story() -> None:
            first, second = (candidate(connect, name, timeout_s=TIMEOUT_S) for name in ("w1", "w2"))
            async with Watch(first, second).on(), running(first), running(second):
                await until_true(lambda: first.state is MAY_LEAD or second.state is MAY_LEAD)
                for server in ensemble.servers:
                    server.kill()
                    await paused(TIMEOUT_S, "a session expires")
                    await until_true(lambda: first.state is MAY_LEAD or second.state is MAY_LEAD)
                    await asyncio.to_thread(server.start)
                    await until_true(lambda: first.state is MAY_LEAD or second.state is MAY_LEAD)

        await story()


async def test_a_server_cut_off_from_the_others_keeps_nobody_in_office_though_it_answers_reads() -> None:
    # It does so until its syncLimit, 10 s here.
    with ZooKeeperEnsemble(settings={"syncLimit": 20}) as ensemble:
        chroot_on(ensemble, "cut-off")
        alone = ensemble.leader()
        others = [server for server in ensemble.servers if server is not alone]

        async def story() -> None:
            async with running(candidate(f"{alone.connect}/cut-off", "w1", timeout_s=TIMEOUT_S)) as first:
                await until(first, MAY_LEAD, promised_s=1.0)
                for server in others:
                    server.freeze()
                try:
                    async with within(TIMEOUT_S):
                        await until(first, SUSPENDED, promised_s=TIMEOUT_S * 2 / 3)
                    await until(first, LOST, promised_s=TIMEOUT_S)
                finally:
                    for server in others:
                        server.thaw()
                await until(first, MAY_LEAD, promised_s=10.0)

        await story()


# --- what an operator is told -----------------------------------------------------------------------------------------


def why_blocked(election: ZooKeeperElection, capsys: pytest.CaptureFixture[str]) -> str:
    """Run until there is one, with everything logged that anybody would log; nothing of it may hold the password."""
    everything = logging.StreamHandler(sys.stdout)
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(everything)
    root.setLevel(1)

    async def story() -> None:
        async with running(election):
            await until_true(lambda: election.blocked is not None)
            assert election.state is LOST

    try:
        run(story())
    finally:
        root.removeHandler(everything)
        root.setLevel(level)
    assert election.blocked is not None
    shown = capsys.readouterr()
    for text in (shown.out, shown.err, str(election.blocked), repr(election.blocked)):
        assert PASSWORD not in text
    assert "election.blocked" in shown.out
    assert "mm2py keeps trying" in str(election.blocked)
    return str(election.blocked)


def test_nobody_there_is_told_with_the_setting_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    lease = lease_ports(1)[0]
    try:
        message = why_blocked(candidate(f"{HOST}:{lease.port}", "w1", timeout_s=1.0), capsys)
    finally:
        lease.release()
    assert message.startswith(f"No ZooKeeper of zookeeper.connect ({HOST}:{lease.port}) answers: {HOST}:{lease.port}:")
    assert "Connection refused" in message and "correct zookeeper.connect" in message


def test_something_that_is_no_zookeeper_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((HOST, 0)) as deaf:
        port = deaf.getsockname()[1]
        message = why_blocked(candidate(f"{HOST}:{port}", "w1", timeout_s=1.0, digest=f"u:{PASSWORD}"), capsys)
    assert f"{HOST}:{port} took the connection, and is no ZooKeeper or has no quorum" in message


def test_a_name_without_an_address_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    message = why_blocked(candidate("zookeeper.invalid:2181", "w1", timeout_s=1.0), capsys)
    assert "answers: none of these names has an address." in message


def test_a_missing_chroot_is_not_made_but_told(one_server: ZooKeeper, capsys: pytest.CaptureFixture[str]) -> None:
    message = why_blocked(candidate(f"{one_server.connect}/no/such", "w1", timeout_s=TIMEOUT_S), capsys)
    assert message.startswith("The chroot /no/such of zookeeper.connect does not exist. Create it (zkCli.sh create")
    with client_of(one_server.connect) as client:
        assert client.exists("/no") is None


async def test_once_the_chroot_is_there_a_leader_is_elected(one_server: ZooKeeper) -> None:
    async with running(candidate(f"{one_server.connect}/later", "w1", timeout_s=TIMEOUT_S)) as first:
        await until_true(lambda: first.blocked is not None)
        chroot_on(one_server, "later")
        await until(first, MAY_LEAD, promised_s=4.0)
        assert first.blocked is None


def test_nodes_belong_to_the_user_of_the_digest_and_another_password_is_told(
    one_server: ZooKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    connect = chroot_on(one_server, "digest")

    async def story() -> None:
        digest = f"mirror:{PASSWORD}"
        async with running(candidate(connect, "w1", timeout_s=TIMEOUT_S, digest=digest)) as first:
            await until(first, MAY_LEAD, promised_s=1.0)
        with client_of(connect) as client:
            client.add_auth("digest", digest)
            acls, _ = client.get_acls("/mm2py")
        assert [(acl.perms, acl.id) for acl in acls] == [(31, make_digest_acl("mirror", PASSWORD, all=True).id)]

    run(story())
    message = why_blocked(candidate(connect, "w2", timeout_s=TIMEOUT_S, digest=f"mirror:{PASSWORD}2"), capsys)
    assert "does not let the user of zookeeper.auth.digest list /digest/mm2py" in message
    assert "Check zookeeper.auth.digest" in message and "zookeeper.connect" in message
    message = why_blocked(candidate(connect, "w3", timeout_s=TIMEOUT_S), capsys)
    assert "does not let a client without zookeeper.auth.digest" in message


async def test_a_client_without_the_digest_can_neither_end_the_election_nor_take_part_in_it(
    one_server: ZooKeeper,
) -> None:
    """S30."""
    connect = chroot_on(one_server, "guarded")
    digest = f"mirror:{PASSWORD}"
    async with running(candidate(connect, "w1", timeout_s=TIMEOUT_S, digest=digest)) as first:
        await until(first, MAY_LEAD, promised_s=1.0)
        with client_of(connect) as owner, client_of(connect) as stranger:
            owner.add_auth("digest", digest)
            paths = ["/mm2py"]
            for path in paths:
                paths += [f"{path}/{child}" for child in owner.get_children(path)]
            assert len(paths) > 1, "the candidate has a node"
            for path in paths:
                for attempt in (
                    lambda path=path: stranger.delete(path, recursive=True),
                    lambda path=path: stranger.create(f"{path}/0000000000000000-0000000000", b""),
                    lambda path=path: stranger.set(path, b""),
                    lambda path=path: stranger.set_acls(path, OPEN_ACL_UNSAFE),
                ):
                    with pytest.raises(NoAuthError):
                        attempt()
            for path in paths[1:]:
                with pytest.raises(NoAuthError):
                    stranger.delete(path)
        assert first.blocked is None


async def test_without_set_acl_nodes_are_for_everyone(one_server: ZooKeeper) -> None:
    connect = chroot_on(one_server, "open")
    digest = f"mirror:{PASSWORD}"
    async with running(candidate(connect, "w1", timeout_s=TIMEOUT_S, digest=digest, set_acl=False)) as first:
        await until(first, MAY_LEAD, promised_s=1.0)
        with client_of(connect) as client:
            acls, _ = client.get_acls("/mm2py")
        assert [acl.id.scheme for acl in acls] == ["world"]


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_tls_with_certificates_of_both_sides_and_what_is_told_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, stranger = Authority(), Authority("another authority")
    lease = lease_ports(1)[0]
    ca, keys, ours, other_ca = (
        write_private(tmp_path / name, content)
        for name, content in (
            ("ca.pem", authority.pem()),
            ("server.pem", authority.issue("zookeeper", hosts=[HOST]).pem()),
            ("ours.pem", authority.issue("mm2py").pem()),
            ("other.pem", stranger.pem()),
        )
    )
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": lease.port,
        "secureClientPortAddress": HOST,
        "ssl.keyStore.location": str(keys),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(ca),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
        "ssl.clientHostnameVerification": False,
    }
    secure = f"{HOST}:{lease.port}"
    identity = KeyStore("PEM", ours)
    trusting = TlsSettings(TrustStore("PEM", ca), identity)
    with ZooKeeper("zookeeper-tls", settings=settings) as server:

        async def story() -> None:
            async with running(candidate(secure, "w1", timeout_s=TIMEOUT_S, tls=trusting)) as first:
                await until(first, MAY_LEAD, promised_s=2.0)
                await paused(TIMEOUT_S * 2, "its session is kept")
                assert first.state is MAY_LEAD

        run(story())
        distrusting = TlsSettings(TrustStore("PEM", other_ca), identity)
        message = why_blocked(candidate(secure, "w2", timeout_s=1.0, tls=distrusting), capsys)
        assert f"{secure}: its certificate comes from an authority that is not trusted" in message
        elsewhere = candidate(f"localhost:{lease.port}", "w3", timeout_s=1.0, tls=trusting)
        assert "its certificate is not for localhost" in why_blocked(elsewhere, capsys)
        message = why_blocked(candidate(server.connect, "w4", timeout_s=1.0, tls=trusting), capsys)
        assert "secureClientPort" in message and "zookeeper.ssl" in message
    lease.release()


def test_a_certificate_file_that_is_not_there_is_told(
    one_server: ZooKeeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "ca.pem"
    settings = TlsSettings(TrustStore("PEM", missing))
    message = why_blocked(candidate(one_server.connect, "w1", timeout_s=1.0, tls=settings), capsys)
    assert f"{missing} cannot be used: there is no such file" in message


# --- processes --------------------------------------------------------------------------------------------------------


@contextmanager
def process(connect: str, worker: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a candidate in a process of its own, which is killed at the end: it never ends by itself."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.candidate", connect, worker, str(TIMEOUT_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
    ) as started:
        try:
            yield started
        finally:
            started.kill()


async def told(process: subprocess.Popen[bytes], wanted: str | None = None) -> str:
    """Return the next state a candidate prints, or the first that is ``wanted``."""
    assert process.stdout is not None
    async with within(TIMEOUT_S * LATER):
        while True:
            line = (await asyncio.to_thread(process.stdout.readline)).decode().strip()
            assert line, "it ended"
            if wanted in (None, line):
                return line


def candidates(server: ZooKeeper, chroot: str) -> list[str]:
    with client_of(f"{server.connect}/{chroot}") as client:
        found: list[str] = client.get_children("/mm2py/mm2py/Yl3Z0kQmRkC8mVnq2u4b1A/election")
        return found
