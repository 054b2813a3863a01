"""GSSAPI without a Kerberos server: the conversation of RFC 4752, renewal of tickets, silent servers, and messages."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mm2py.kafka.errors import TicketUnavailable
from mm2py.kafka.security import kerberos
from mm2py.kafka.security.gssapi_sasl import TICKET_EXPIRED, GssapiContext, GssapiConversation, GssapiFailed
from mm2py.kafka.security.kerberos import (
    CLIENT_UNKNOWN,
    CLOCK_SKEW,
    KEY_EXPIRED,
    NO_DEFAULT_REALM,
    NO_KDC_NAMED,
    NO_KDC_REACHED,
    NO_KEY_OR_CACHE,
    SERVICE_UNKNOWN,
    WRONG_KEY,
    KerberosLogin,
)
from mm2py.kafka.security.sasl import SaslRefused
from mm2py.kafka.security.settings import KerberosCredential, RefreshSettings

pytestmark = pytest.mark.real_time

RENEWAL = RefreshSettings(0.8, 0.0, min_period_s=60.0, buffer_s=0.0)


# -- the conversation -------------------------------------------------------------------------------------------------


@dataclass
class FakeContext:
    """Wraps as ``<message>``; complete after one answer of the broker."""

    complete: bool = False
    fails: bool = False

    def step(self, token: bytes | None) -> bytes | None:
        if self.fails:
            raise GssapiFailed(-1, "Message stream modified")
        self.complete = token == b"proof"
        return None if self.complete else b"more"

    def wrap(self, message: bytes) -> bytes:
        return b"<" + message + b">"

    def unwrap(self, message: bytes) -> bytes:
        if message[:1] + message[-1:] != b"<>":
            raise GssapiFailed(-1, "A token had an invalid Message Integrity Check")
        return message[1:-1]


def test_both_sides_prove_who_they_are_and_agree_on_no_layer() -> None:
    talk = GssapiConversation(FakeContext(), b"first")
    assert talk.first() == b"first"
    assert talk.answer(b"halfway") == b"more"
    assert talk.answer(b"proof") == b""
    assert talk.answer(b"<\x07\x00\xff\xff>") == b"<\x01\x00\x00\x00>"
    assert talk.answer(b"") is None


@pytest.mark.parametrize(
    ("challenges", "why"),
    [
        ([b"proof", b"<\x06\x00\xff\xff>"], "it demands a layer of SASL"),
        ([b"proof", b"<\x01>"], "it demands a layer of SASL"),
        ([b"proof", b"\x01\x00\x00\x00"], "did not prove who it is (A token had an invalid"),
        ([b"proof", b""], "did not prove who it is"),
        ([b"proof", b"<\x01\x00\x00\x00>", b"x"], "goes on after the end"),
    ],
)
def test_a_broker_that_does_not_keep_to_it_is_refused(challenges: list[bytes], why: str) -> None:
    talk = GssapiConversation(FakeContext(), b"first")
    for challenge in challenges[:-1]:
        assert talk.answer(challenge) is not None
    with pytest.raises(SaslRefused) as caught:
        talk.answer(challenges[-1])
    assert why in str(caught.value)
    assert "See the broker's log" in caught.value.remedy


def test_a_broker_with_a_false_proof_is_refused() -> None:
    with pytest.raises(SaslRefused, match="did not prove who it is"):
        GssapiConversation(FakeContext(fails=True), b"first").answer(b"proof")


# -- tickets ----------------------------------------------------------------------------------------------------------


@dataclass
class FakeLibrary:
    """A Kerberos server whose tickets are numbers."""

    life_s: float = 100.0
    logins: int = 0
    fails: GssapiFailed | None = None
    no_service: GssapiFailed | None = None
    answers: threading.Event = field(default_factory=threading.Event)
    """Log-ins wait for it."""
    used: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers.set()

    def log_in(self, credential: KerberosCredential) -> tuple[Any, float]:
        self.logins += 1
        number = self.logins
        self.answers.wait()
        if self.fails is not None:
            raise self.fails
        return number, self.life_s

    def open(self, ticket: Any, service: str, host: str) -> tuple[GssapiContext, bytes]:
        if self.no_service is not None:
            raise self.no_service
        self.used.append(ticket)
        return FakeContext(), f"{ticket} for {service}/{host}".encode()


@dataclass
class Scene:
    keytab: Path
    library: FakeLibrary = field(default_factory=FakeLibrary)
    now_s: float = 1_000.0
    said: list[str] = field(default_factory=list)

    def login(self, renewal: RefreshSettings = RENEWAL, **changed: Any) -> KerberosLogin:
        of = {"principal": "mirror", "keytab": self.keytab, **changed}
        return KerberosLogin(
            KerberosCredential("kafka", **of, renewal=renewal),
            self.library,
            rng=random.Random(1),
            report=self.said.append,
            clock=lambda: self.now_s,
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    keytab = tmp_path / "mirror.keytab"
    keytab.write_bytes(b"\x05\x02and keys")
    return Scene(keytab)


async def settled(condition: Callable[[], bool]) -> None:
    """Wait for what a thread brings."""
    while not condition():
        await asyncio.sleep(0.001)


async def test_one_ticket_serves_all_connections_until_four_fifths_of_its_life(scene: Scene) -> None:
    login = scene.login()
    assert (await login.conversation("b1")).first() == b"1 for kafka/b1"
    scene.now_s += 79
    assert (await login.conversation("b2")).first() == b"1 for kafka/b2"
    assert scene.library.logins == 1


async def test_a_ticket_is_renewed_while_connections_go_on_with_the_old_one(scene: Scene) -> None:
    """A silent server must not delay a connection that has a ticket."""
    login = scene.login()
    await login.conversation("b")
    scene.library.answers.clear()
    scene.now_s += 81
    for _ in range(3):
        assert (await login.conversation("b")).first() == b"1 for kafka/b"
    await settled(lambda: scene.library.logins == 2)
    scene.library.answers.set()
    while (await login.conversation("b")).first() != b"2 for kafka/b":
        await asyncio.sleep(0.001)
    assert scene.library.logins == 2
    assert scene.said == []


async def test_while_renewal_fails_the_old_ticket_is_used_to_its_end_and_that_is_said_once(scene: Scene) -> None:
    login = scene.login()
    await login.conversation("b")
    scene.library.fails = GssapiFailed(NO_KDC_REACHED, "Cannot contact any KDC")
    scene.now_s += 81
    await login.conversation("b")
    await settled(lambda: bool(scene.said))
    scene.now_s += 18
    await login.conversation("b")
    await settled(lambda: scene.library.logins == 3)
    assert (await login.conversation("b")).first() == b"1 for kafka/b"
    assert scene.said == [
        f"No Kerberos ticket with {scene.keytab}: no Kerberos server can be reached (Cannot contact any KDC). The old"
        " one stays in use."
    ]
    scene.now_s += 1.1
    with pytest.raises(TicketUnavailable, match="no Kerberos server can be reached"):
        await login.conversation("b")
    scene.library.fails = None
    scene.now_s += 40
    assert b" for kafka/b" in (await login.conversation("b")).first()


async def test_the_server_is_not_asked_again_and_again(scene: Scene) -> None:
    """More frequent attempts with a wrong key may lock the account."""
    login = scene.login()
    scene.library.fails = GssapiFailed(WRONG_KEY[0], "Decrypt integrity check failed")
    for _ in range(20):
        with pytest.raises(TicketUnavailable, match="its key of mirror is not the one"):
            await login.conversation("b")
    assert scene.library.logins == 1
    scene.now_s += 2
    with pytest.raises(TicketUnavailable):
        await login.conversation("b")
    assert scene.library.logins == 2


async def test_a_silent_server_costs_a_deadline_and_its_late_answer_is_used(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kerberos, "ANSWER_S", 0.05)
    login = scene.login()
    scene.library.answers.clear()
    for _ in range(10):  # more than there may be threads
        with pytest.raises(TicketUnavailable, match="did not answer within"):
            await login.conversation("b")
    assert scene.library.logins == 1
    scene.library.answers.set()
    monkeypatch.setattr(kerberos, "ANSWER_S", 20.0)
    assert (await login.conversation("b")).first() == b"1 for kafka/b"


async def test_calls_that_hang_never_take_more_than_a_few_threads(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kerberos, "ANSWER_S", 0.05)
    login = scene.login()
    await login.conversation("b")
    hangs, begun = threading.Event(), []

    def hang(ticket: Any, service: str, host: str) -> tuple[GssapiContext, bytes]:
        begun.append(host)
        hangs.wait()
        raise GssapiFailed(NO_KDC_REACHED, "late")

    monkeypatch.setattr(scene.library, "open", hang)
    try:
        for number in range(kerberos.THREADS_MOST + 3):
            with pytest.raises(TicketUnavailable, match="did not answer within"):
                await login.conversation(f"b{number}")
        await settled(lambda: len(begun) >= kerberos.THREADS_MOST)
        assert len(begun) == kerberos.THREADS_MOST
    finally:
        hangs.set()


async def test_a_cache_of_tickets_is_read_again_before_they_end(scene: Scene) -> None:
    login = scene.login(RefreshSettings(0.8, 0.0, 0.0, 0.0), keytab=None, ticket_cache="/run/tickets")
    await login.conversation("b")
    scene.now_s += 81
    await login.conversation("b")
    await settled(lambda: scene.library.logins == 2)


# -- messages ---------------------------------------------------------------------------------------------------------

OF_THE_KEYTAB: list[tuple[int, str, str]] = [
    (CLIENT_UNKNOWN, "the Kerberos server does not know mirror", "Check principal in sasl.jaas.config"),
    *[(code, "its key of mirror is not the one that the Kerberos server has", "Export the") for code in WRONG_KEY],
    *[(code, "it holds no key of mirror", "See klist -k ") for code in NO_KEY_OR_CACHE],
    (CLOCK_SKEW, "this machine's clock and the Kerberos server's differ too much", "Set both by NTP"),
    (NO_KDC_REACHED, "no Kerberos server can be reached (what it says)", "Check the realm's kdc in krb5.conf"),
    (NO_KDC_NAMED, "krb5.conf does not name it a server (what it says)", "KRB5_CONFIG"),
    (NO_DEFAULT_REALM, "krb5.conf does not name it a server (what it says)", "default_realm"),
    (KEY_EXPIRED, "the Kerberos server lets mirror in no longer (what it says)", "Renew that principal"),
    (-1765328324, "what it says (-1765328324)", "KRB5_TRACE"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "why", "remedy"), OF_THE_KEYTAB)
async def test_each_failure_of_a_login_says_what_to_do(scene: Scene, code: int, why: str, remedy: str) -> None:
    scene.library.fails = GssapiFailed(code, "what it says")
    with pytest.raises(TicketUnavailable) as caught:
        await scene.login().conversation("b")
    assert f"No Kerberos ticket with {scene.keytab}: {why}." == caught.value.what
    assert remedy in caught.value.remedy
    assert caught.value.retriable


@pytest.mark.parametrize(
    ("code", "why"), [(NO_KEY_OR_CACHE[0], "there are no tickets in it"), (TICKET_EXPIRED, "its ticket has expired")]
)
async def test_a_cache_without_a_valid_ticket_asks_for_kinit(scene: Scene, code: int, why: str) -> None:
    scene.library.fails = GssapiFailed(code, "what it says")
    with pytest.raises(TicketUnavailable, match=f"with /run/tickets: {why}") as caught:
        await scene.login(keytab=None, ticket_cache="/run/tickets").conversation("b")
    assert "Run kinit" in caught.value.remedy


async def test_a_service_that_the_server_does_not_know_is_named_with_its_host(scene: Scene) -> None:
    scene.library.no_service = GssapiFailed(SERVICE_UNKNOWN, "Server kafka/x not found")
    with pytest.raises(TicketUnavailable, match=r"knows no service kafka/b1 \(Server kafka/x not found\)") as caught:
        await scene.login().conversation("b1")
    assert "dns_canonicalize_hostname" in caught.value.remedy


async def test_a_keytab_that_cannot_be_read_is_named_before_the_server_is_asked(scene: Scene) -> None:
    login = scene.login()
    scene.keytab.write_bytes(b"-----BEGIN canary")
    with pytest.raises(TicketUnavailable, match="it is no keytab") as caught:
        await login.conversation("b")
    assert "canary" not in str(caught.value)
    scene.keytab.unlink()
    scene.now_s += 40
    with pytest.raises(TicketUnavailable, match=f"{scene.keytab}: No such file or directory"):
        await login.conversation("b")
    assert scene.library.logins == 0
