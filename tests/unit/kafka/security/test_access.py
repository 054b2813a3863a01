"""Authentication of a connection: brokers that refuse, cheat or echo, pauses after a refusal, and sessions that end."""

from __future__ import annotations

import asyncio
import base64
import datetime
import itertools
import random
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta
from kio.static.protocol import Payload

from mm2py.kafka import messages
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.errors import AuthenticationFailed, BrokerUnreachable, KafkaError, NotKafka
from mm2py.kafka.port import ANY_BROKER
from mm2py.kafka.security.access import Access, SaslSession
from mm2py.kafka.security.settings import PasswordCredential, SaslSettings, Security
from mm2py.kafka.transport.connection import MAX_FIRST_FRAME_BYTES, Connection
from mm2py.kafka.transport.opening import connect
from mm2py.secret import Secret
from tests.unit.kafka.security.test_scram import Server as ScramServer
from tests.unit.kafka.transport.test_connection import METADATA, RANGES, api_versions, frame, metadata_reply, written

pytestmark = pytest.mark.both_loops

HANDSHAKE_KEY, AUTHENTICATE_KEY = 17, 36
SASL_RANGES = {**RANGES, HANDSHAKE_KEY: (0, 1), AUTHENTICATE_KEY: (0, 2)}
PASSWORD = "canary-password"  # noqa: S105


def security(mechanism: Any = "PLAIN") -> Security:
    return Security("SASL_PLAINTEXT", sasl=SaslSettings(mechanism, PasswordCredential("anna", Secret(PASSWORD))))


Run = Callable[[Coroutine[Any, Any, None]], None]


class Broker:
    """A stub that speaks SASL as it is told; by default it lets everyone in who says something."""

    def __init__(self) -> None:
        self.handshake = messages.SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=("PLAIN",))
        self.steps: list[Callable[[bytes], Payload | bytes]] = []
        self.lifetime_ms = 0
        self.log: list[str] = []
        self.connections = 0
        self.port = 0
        self.hold: asyncio.Event | None = None
        """Answers to metadata wait for it."""
        self.slow_s = 0.0
        """Before each answer."""

    def accepts(self, _: bytes) -> Payload:
        return authenticated(lifetime_ms=self.lifetime_ms)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        steps: Iterator[Callable[[bytes], Payload | bytes]] = iter(())
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                content = await reader.readexactly(size)
                await asyncio.sleep(self.slow_s)
                key, _, number, length = struct.unpack(">hhih", content[:10])
                body = content[10 + length :]
                if key == 18:
                    writer.write(api_versions(number, SASL_RANGES))
                elif key == HANDSHAKE_KEY:
                    self.log.append("handshake")
                    steps = iter(self.steps or [self.accepts])
                    writer.write(frame(number, written(self.handshake), header_tags=b""))
                elif key == AUTHENTICATE_KEY:
                    self.log.append("authenticate")
                    answer = next(steps)(auth_bytes(body))
                    writer.write(answer if isinstance(answer, bytes) else frame(number, written(answer)))
                else:
                    self.log.append("metadata")
                    if self.hold is not None:
                        await self.hold.wait()
                    writer.write(metadata_reply(number))
        except (OSError, asyncio.IncompleteReadError, StopIteration):
            writer.close()

    async def connect(self, mechanism: Any = "PLAIN", *, access: Access | None = None) -> Connection:
        access = access or Access("A", security(mechanism))
        return await connect("127.0.0.1", self.port, client_id="test", timeout_s=10, access=access)


def auth_bytes(body: bytes) -> bytes:
    """Of a SaslAuthenticateRequest v2: header tags, compact length, bytes, tags."""
    length, at, shift = 0, 1, 0
    while True:
        byte = body[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return body[at : at + length - 1]


def authenticated(content: bytes = b"", *, error: int = 0, message: str | None = None, lifetime_ms: int = 0) -> Payload:
    return messages.SaslAuthenticateResponse(
        error_code=ErrorCode(error),
        error_message=message,
        auth_bytes=content,
        session_lifetime=i64Timedelta.parse(datetime.timedelta(milliseconds=lifetime_ms)),
    )


@asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    stub = Broker()
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        server.close()


async def refused(stub: Broker, mechanism: Any = "PLAIN") -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        await stub.connect(mechanism)
    text = str(caught.value)
    assert text.startswith(f"127.0.0.1:{stub.port} of A did not authenticate mm2py by {mechanism}: ")
    assert PASSWORD not in text
    assert caught.value.retriable
    return text


async def test_steps_that_are_answered_in_time_may_take_longer_together() -> None:
    """Else nobody got in over a long way, where TLS and SASL take seven round trips."""
    async with broker() as stub:
        stub.slow_s = 0.8
        access = Access("A", security())
        connection = await connect(
            "127.0.0.1", stub.port, client_id="test", timeout_s=30, step_timeout_s=2.0, access=access
        )
        connection.close()
        stub.slow_s = 20.0
        with pytest.raises(NotKafka, match=r"within 1\.0 s|within 1 s"):
            await connect("127.0.0.1", stub.port, client_id="test", timeout_s=30, step_timeout_s=1.0, access=access)


# -- refusals ---------------------------------------------------------------------------------------------------------


async def test_who_is_accepted_may_ask() -> None:
    async with broker() as stub:
        seen: list[bytes] = []
        stub.steps = [lambda said: (seen.append(said), authenticated())[1]]
        connection = await stub.connect()
        await connection.request(METADATA, 5)
        assert seen == [b"\0anna\0canary-password"]
        assert stub.log == ["handshake", "authenticate", "metadata"]


async def test_every_refusal_says_why_and_repeats_no_password() -> None:
    async with broker() as stub:
        stub.steps = [lambda _: authenticated(error=58, message=f"Wrong: {PASSWORD}\nlevel=error")]
        assert "Wrong: [hidden]\\nlevel=error" in await refused(stub)
        stub.steps = [lambda _: authenticated(error=58, message="x" * 190 + PASSWORD)]
        assert "canary" not in await refused(stub)
        stub.steps = [lambda _: authenticated(error=58, message=None)]
        assert "SASL_AUTHENTICATION_FAILED" in await refused(stub)
        stub.steps = [lambda _: authenticated(b"and now?")]
        assert "PLAIN has no answer to" in await refused(stub)
        stub.handshake = messages.SaslHandshakeResponse(
            error_code=ErrorCode(33), mechanisms=("GSSAPI", "SCRAM-SHA-512")
        )
        assert "it offers other mechanisms: GSSAPI, SCRAM-SHA-512" in await refused(stub)
        stub.handshake = messages.SaslHandshakeResponse(error_code=ErrorCode(33), mechanisms=("x" * 190, PASSWORD))
        assert "canary" not in await refused(stub)
        stub.handshake = messages.SaslHandshakeResponse(error_code=ErrorCode(34), mechanisms=())
        assert "this listener does no SASL" in await refused(stub)


async def test_a_broker_that_cheats_at_scram_is_refused_and_the_loop_goes_on() -> None:
    """S15: short nonce, iterations of 1 and 10^9, a wrong signature."""
    async with broker() as stub:
        salt = base64.b64encode(b"salt").decode()

        def first(nonce: str, iterations: int) -> Callable[[bytes], Payload]:
            def step(said: bytes) -> Payload:
                ours = said.decode().partition("r=")[2]
                return authenticated(f"r={nonce.format(ours)},s={salt},i={iterations}".encode())

            return step

        for nonce, iterations, why in [
            ("{}", 4096, "nonce does not continue ours"),
            ("short", 4096, "nonce does not continue ours"),
            ("{}x", 1, "asks for 1 iterations"),
            ("{}x", 10**9, "asks for 1,000,000,000 iterations"),
        ]:
            stub.steps, stub.log = [first(nonce, iterations)], []
            assert why in await refused(stub, "SCRAM-SHA-256")
            assert stub.log.count("authenticate") == 1, "it got no proof"
        stub.steps = [first("{}x", 4096), lambda _: authenticated(b"v=" + base64.b64encode(b"\0" * 32))]
        assert "could not prove that it knows the password" in await refused(stub, "SCRAM-SHA-256")
        stub.steps = [first("{}x", 4096), lambda _: authenticated(b"")]
        assert "could not prove that it knows the password" in await refused(stub, "SCRAM-SHA-256")


async def test_scram_with_many_iterations_does_not_hold_up_the_loop() -> None:
    async with broker() as stub:
        server = ScramServer("SCRAM-SHA-512", PASSWORD, iterations=400_000)
        stub.steps = [
            lambda said: authenticated(server.challenge(said)),
            lambda said: authenticated(server.verdict(said) or b""),
        ]
        here_s, everywhere_s = time.thread_time(), time.process_time()
        await stub.connect("SCRAM-SHA-512")
        here_s, everywhere_s = time.thread_time() - here_s, time.process_time() - everywhere_s
        assert here_s < everywhere_s / 2, "the work is done beside the loop's thread"


async def test_frames_stay_small_until_a_broker_has_accepted_us() -> None:
    """S22."""
    async with broker() as stub:
        stub.steps = [lambda _: struct.pack(">i", MAX_FIRST_FRAME_BYTES + 1)]
        with pytest.raises(KafkaError):
            await stub.connect()


async def test_a_broker_that_turned_us_away_is_left_alone_for_a_while() -> None:
    async with broker() as stub:
        stub.steps = [lambda _: authenticated(error=58, message="no")]
        cluster = Cluster(
            "A", [("127.0.0.1", stub.port)], rng=random.Random(1), client_id="t", access=Access("A", security())
        )
        for _ in range(20):
            with pytest.raises(AuthenticationFailed):
                await cluster.send(ANY_BROKER, METADATA)
        assert stub.connections == 1
        turned_away = cluster._turned_away[("127.0.0.1", stub.port)]
        assert 0.5 < turned_away.until_s - asyncio.get_running_loop().time() < 2
        stub.steps = []
        cluster._turned_away.clear()
        await asyncio.sleep(0.01)  # those who ask within one tick of the clock share an outcome
        await cluster.send(ANY_BROKER, METADATA)
        await cluster.close()


# -- sessions that end (KIP-368) --------------------------------------------------------------------------------------


@contextmanager
def at_end_of(connection: Connection) -> Iterator[None]:
    """As if most of the session's life were over."""
    session = connection._session
    assert session is not None
    session._renew_at_s = session._renewable_at_s = 0.0
    yield


async def test_a_session_is_renewed_between_requests_in_order_and_nothing_is_lost() -> None:
    async with broker() as stub:
        stub.lifetime_ms, stub.hold = 60_000, asyncio.Event()
        connection = await stub.connect()
        under_way = asyncio.create_task(connection.request(METADATA, 5))
        while "metadata" not in stub.log:
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        with at_end_of(connection):
            later = [asyncio.create_task(connection.request(METADATA, 5)) for _ in range(3)]
            await asyncio.sleep(0)
            stub.hold.set()
            await asyncio.gather(under_way, *later)
        first = ["handshake", "authenticate", "metadata"]
        assert stub.log == [*first, *first, "metadata", "metadata"], "once, and before those that came later"
        assert stub.connections == 1
        await connection.request(METADATA, 5)
        assert stub.log.count("handshake") == 2


@pytest.mark.virtual_time
async def test_a_session_of_a_token_about_to_end_is_not_renewed_within_a_second() -> None:
    """The story: a token had 0.4 s left, so the session had, too. The renewal after 0.34 s was answered by
    ILLEGAL_SASL_STATE, for brokers take two authentications within a second for a mistake, and the connection ended."""
    clock = asyncio.get_running_loop()
    renewed_at_s: list[float] = []

    async def again() -> float:
        renewed_at_s.append(clock.time())
        return 0.4

    session = SaslSession(0.4, again, report=lambda _: None)
    begun_s = clock.time()
    for _ in range(30):
        await session.ensure()
        await asyncio.sleep(0.1)
    pauses_s = [at - before for before, at in itertools.pairwise([begun_s, *renewed_at_s])]
    assert pauses_s
    assert min(pauses_s) > 1.0


async def test_a_refused_renewal_ends_the_connection_with_its_reason() -> None:
    async with broker() as stub:
        stub.lifetime_ms = 60_000
        connection = await stub.connect()
        stub.steps = [lambda _: authenticated(error=58, message="the password has changed")]
        with at_end_of(connection), pytest.raises(AuthenticationFailed, match="the password has changed"):
            await connection.request(METADATA, 5)
        assert not connection.is_open
        assert stub.log.count("metadata") == 0


async def test_a_renewal_that_is_cancelled_half_way_leaves_no_half_authenticated_connection() -> None:
    async with broker() as stub:
        stub.lifetime_ms = 60_000
        connection = await stub.connect()
        stub.steps = [lambda _: b""]  # no answer
        with at_end_of(connection):
            asking = asyncio.create_task(connection.request(METADATA, 5))
            while stub.log.count("authenticate") < 2:
                await asyncio.sleep(0.001)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert not connection.is_open
        with pytest.raises(BrokerUnreachable, match="given up"):
            await connection.request(METADATA, 5)


async def test_while_nothing_can_be_prepared_the_session_is_used_to_its_end() -> None:
    async with broker() as stub:
        said: list[str] = []
        stub.lifetime_ms = 60_000
        access = Access("A", security(), report=said.append)
        connection = await stub.connect(access=access)

        async def fails(host: str) -> Any:
            raise BrokerUnreachable("The token server", "it is down")

        access.prepare = fails  # type: ignore[method-assign]
        with at_end_of(connection):
            await connection.request(METADATA, 5)
        assert stub.log.count("handshake") == 1
        assert "The session lasts a while yet." in said[0]
