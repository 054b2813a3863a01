"""Tickets for GSSAPI: got with a keytab and renewed before they expire, while connections go on with the old ones.

A connection needs two things of the Kerberos server (KDC): the ticket by which mm2py is known, and with it one for the
broker, which the library keeps. Both calls may block for as long as a server is silent, so they run in threads of our
own, a few at a time, and nobody waits for one beyond a deadline.

Counterpart: KerberosLogin of Apache Kafka's clients. That one runs ``kinit``; mm2py logs in by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from mm2py.kafka.errors import Backoff, TicketUnavailable
from mm2py.kafka.security.gssapi_sasl import TICKET_EXPIRED, GssapiContext, GssapiConversation, GssapiFailed
from mm2py.kafka.security.settings import KerberosCredential
from mm2py.kafka.security.tokens import refresh_at_s

T = TypeVar("T")

ANSWER_S: Final = 20.0
"""How long a connection waits for the Kerberos server."""
THREADS_MOST: Final = 4
AGAIN_FIRST_S: Final = 1.0
AGAIN_MOST_S: Final = 30.0
KEYTAB_MAGICS: Final = (b"\x05\x01", b"\x05\x02")

# Kerberos' own numbers (krb5.h)
CLIENT_EXPIRED: Final = -1765328383
CLIENT_UNKNOWN: Final = -1765328378
SERVICE_UNKNOWN: Final = -1765328377
CLIENT_LOCKED: Final = -1765328366
KEY_EXPIRED: Final = -1765328361
WRONG_KEY: Final = (-1765328353, -1765328360, -1765328174)
CLOCK_SKEW: Final = -1765328347
NO_KDC_NAMED: Final = -1765328230
NO_KDC_REACHED: Final = -1765328228
NO_KEY_OR_CACHE: Final = (-1765328189, -1765328203, -1765328243)
NO_DEFAULT_REALM: Final = -1765328160
OTHER_USER: Final = 39756032
"""A number of MIT's GSS-API."""


class TicketLibrary(Protocol):
    """As ``kerberos_library.py``; its calls block."""

    def log_in(self, credential: KerberosCredential) -> tuple[Any, float]: ...

    def open(self, ticket: Any, service: str, host: str) -> tuple[GssapiContext, bytes]: ...


class KerberosLogin:
    """The tickets of one side of a flow. Belongs to one event loop."""

    def __init__(
        self,
        credential: KerberosCredential,
        library: TicketLibrary,
        *,
        rng: random.Random,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``report`` gets a sentence when no new ticket could be got while the old one is still valid."""
        self._credential = credential
        self._library = library
        self._rng = rng
        self._report = report
        self._clock = clock
        self._backoff = Backoff(rng, first_s=AGAIN_FIRST_S, most_s=AGAIN_MOST_S)
        self._threads = asyncio.Semaphore(THREADS_MOST)
        self._ticket: Any = None
        self._ends_at_s = self._renew_at_s = self._again_at_s = float("-inf")
        self._failure: TicketUnavailable | None = None
        self._attempt: asyncio.Task[None] | None = None

    async def conversation(self, host: str) -> GssapiConversation:
        """Return a conversation with a broker, by a ticket that is valid now.

        Cancelling leaves the calls running; the next caller gets the ticket.

        Raises:
            TicketUnavailable: there is no ticket for us, or none for this broker.
        """
        service = self._credential.service
        try:
            async with asyncio.timeout(ANSWER_S):
                ticket = await self._valid_ticket()
                context, first = await self._in_thread(lambda: self._library.open(ticket, service, host))
        except GssapiFailed as failed:
            raise _no_ticket(self._credential, failed, host) from None
        except TimeoutError:
            raise _silent(self._credential) from None
        return GssapiConversation(context, first)

    async def _valid_ticket(self) -> Any:
        now_s = self._clock()
        if now_s >= self._renew_at_s and now_s >= self._again_at_s and self._attempt is None:
            self._attempt = asyncio.create_task(self._log_in(), name="Kerberos login")
        if now_s >= self._ends_at_s:
            if self._attempt is not None:
                await asyncio.shield(self._attempt)
            if self._failure is not None:
                raise self._failure.with_traceback(None)
        return self._ticket

    async def _log_in(self) -> None:
        """Get a new ticket. It never fails: an error is for those who need a ticket, or is reported."""
        try:
            ticket, valid_s = await self._in_thread(self._ask)
        except TicketUnavailable as error:
            failure = error
        except GssapiFailed as failed:
            failure = _no_ticket(self._credential, failed)
        else:
            self._take(ticket, valid_s)
            return
        finally:
            self._attempt = None
        self._again_at_s = self._clock() + self._backoff.next_s()
        if self._failure is None and self._clock() < self._ends_at_s:
            self._report(f"{failure.what} The old one stays in use.")
        self._failure = failure

    def _ask(self) -> tuple[Any, float]:
        """Runs in a thread."""
        if self._credential.keytab is not None:
            _check_keytab(self._credential.keytab)
        return self._library.log_in(self._credential)

    def _take(self, ticket: Any, valid_s: float) -> None:
        now_s = self._clock()
        self._ticket, self._ends_at_s = ticket, now_s + valid_s
        self._renew_at_s = refresh_at_s(now_s, self._ends_at_s, self._credential.renewal, self._rng.random())
        self._failure, self._again_at_s = None, now_s
        self._backoff.reset()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run what blocks in a thread of its own. One that waits for a silent server keeps its place until it ends.

        Not ``asyncio.to_thread``: its few threads are shared, and the end of the process waits for them.
        """
        await self._threads.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def take(result: T | None, error: Exception | None) -> None:
            self._threads.release()
            if done.done():
                return  # cancelled
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, error = None, None
            try:
                result = work()
            except Exception as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the event loop may have ended meanwhile
                loop.call_soon_threadsafe(take, result, error)

        try:
            threading.Thread(target=run, name="Kerberos", daemon=True).start()
        except RuntimeError as error:  # the container's limit of threads is reached
            take(None, GssapiFailed(0, str(error)))
        return await done


def _check_keytab(path: Path) -> None:
    """Look at the file: for a missing one the library only says that there is no cache of tickets."""
    try:
        with path.open("rb") as file:
            magic = file.read(2)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "it cannot be read"
        raise TicketUnavailable(str(path), why, remedy="Let mm2py read the keytab.") from error
    if magic not in KEYTAB_MAGICS:
        raise TicketUnavailable(str(path), "it is no keytab", remedy="Name a keytab in keyTab of sasl.jaas.config.")


def _silent(credential: KerberosCredential) -> TicketUnavailable:
    return TicketUnavailable(
        credential.where,
        f"the Kerberos server did not answer within {ANSWER_S:g} s",
        remedy=_KDC_REMEDY,
    )


_KDC_REMEDY: Final = "Check the realm's kdc in krb5.conf (or the file of KRB5_CONFIG), and the network to it."


def _no_ticket(credential: KerberosCredential, failed: GssapiFailed, host: str | None = None) -> TicketUnavailable:
    """Return what an error of the library means to an operator.

    Args:
        host: of the broker for which there is no ticket; None: it is about our own.
    """
    why, remedy = _explained(credential, failed, host)
    return TicketUnavailable(credential.where, why, remedy=remedy)


def _explained(credential: KerberosCredential, failed: GssapiFailed, host: str | None) -> tuple[str, str]:
    code, user = failed.code, credential.principal or "its user"
    service = f"{credential.service}/{host}"
    if code == SERVICE_UNKNOWN and host is not None:
        return (
            f"the Kerberos server knows no service {service} ({failed})",
            "Check sasl.kerberos.service.name and the broker's host name. If the host name in brackets is another, set"
            " dns_canonicalize_hostname = false and rdns = false in krb5.conf.",
        )
    if code == CLIENT_UNKNOWN:
        return f"the Kerberos server does not know {user}", "Check principal in sasl.jaas.config, and its realm."
    if code in WRONG_KEY:
        return (
            f"its key of {user} is not the one that the Kerberos server has",
            "Export the keytab again (ktadd makes new keys, which older keytabs lack); mm2py reads it again.",
        )
    if code in NO_KEY_OR_CACHE:
        if credential.keytab is not None:
            return f"it holds no key of {user}", f"See klist -k {credential.where}, and check principal."
        return "there are no tickets in it", "Run kinit as mm2py's user; mm2py reads it again."
    if code == OTHER_USER:
        return f"the tickets in it are not those of {user}", "Check principal, or remove it to use any ticket."
    if code == TICKET_EXPIRED:
        return "its ticket has expired", "Run kinit again, or use a keytab, with which mm2py renews tickets by itself."
    if code == CLOCK_SKEW:
        return "this machine's clock and the Kerberos server's differ too much", "Set both by NTP."
    if code == NO_KDC_REACHED:
        return f"no Kerberos server can be reached ({failed})", _KDC_REMEDY
    if code in (NO_KDC_NAMED, NO_DEFAULT_REALM):
        return (
            f"krb5.conf does not name it a server ({failed})",
            "Write the realm with its kdc, and default_realm, into krb5.conf, or name that file in KRB5_CONFIG. Java's"
            " java.security.krb5.conf does not count here.",
        )
    if code in (CLIENT_EXPIRED, CLIENT_LOCKED, KEY_EXPIRED):
        return f"the Kerberos server lets {user} in no longer ({failed})", "Renew that principal on the server."
    return f"{failed} ({code})", "See krb5.conf, and KRB5_TRACE=/dev/stderr for what the library does."
