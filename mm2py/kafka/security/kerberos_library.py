"""The system's Kerberos library behind the package ``gssapi``, the extra ``mm2py[kerberos]``. Every call may block.

Tickets got with a keytab are kept in memory, in a cache that no other program sees.

Counterpart: Krb5LoginModule and the JDK's GSS-API.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final, TypeVar

from mm2py.kafka.security.gssapi_sasl import TICKET_EXPIRED, GssapiContext, GssapiFailed
from mm2py.kafka.security.settings import KerberosCredential

T = TypeVar("T")
_numbers: Final = itertools.count()


def package_problem() -> str | None:
    """Return why the library cannot be used and what to do, or None."""
    try:
        import gssapi  # noqa: F401, PLC0415  (an extra)
    except ImportError as error:
        if error.name == "gssapi":
            return "the package gssapi is not installed (pip install 'mm2py[kerberos]')"
        return f"the package gssapi cannot be loaded: {error} (Debian: apt-get install libgssapi-krb5-2)"
    return None


class GssapiLibrary:
    """Gets tickets, and opens security contexts with them."""

    def log_in(self, credential: KerberosCredential) -> tuple[Any, float]:
        """Return a new ticket, and for how many seconds it is valid.

        Raises:
            GssapiFailed: there is none.
        """
        import gssapi  # noqa: PLC0415

        store: dict[str, str] = {}
        if credential.keytab is not None:
            store = {"client_keytab": f"FILE:{credential.keytab}", "ccache": f"MEMORY:mm2py-{next(_numbers)}"}
        elif credential.ticket_cache is not None:
            store = {"ccache": f"FILE:{credential.ticket_cache}"}

        def get() -> tuple[Any, float]:
            name = None
            if credential.principal is not None:
                name = gssapi.Name(credential.principal, gssapi.NameType.kerberos_principal)
            ticket = gssapi.Credentials(
                name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store or None
            )
            return ticket, float(ticket.lifetime)  # the library asks the server no later than now

        return _told(get)

    def open(self, ticket: Any, service: str, host: str) -> tuple[GssapiContext, bytes]:
        """Return a context for a connection to a broker, and its first token.

        Raises:
            GssapiFailed: the Kerberos server gives no ticket for that broker.
        """
        import gssapi  # noqa: PLC0415

        def begin() -> tuple[GssapiContext, bytes]:
            flag = gssapi.RequirementFlag
            context = _Context(
                gssapi.SecurityContext(
                    name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
                    creds=ticket,
                    mech=gssapi.MechType.kerberos,
                    usage="initiate",
                    flags=[flag.mutual_authentication, flag.integrity],
                )
            )
            return context, context.step(None) or b""

        return _told(begin)


class _Context:
    """A security context of the library; errors are ours."""

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes | None:
        answer: bytes | None = _told(lambda: self._context.step(token))
        return answer

    def wrap(self, message: bytes) -> bytes:
        return _told(lambda: bytes(self._context.wrap(message, encrypt=False).message))

    def unwrap(self, message: bytes) -> bytes:
        return _told(lambda: bytes(self._context.unwrap(message).message))


def _told(work: Callable[[], T]) -> T:
    """Do something with the library. Kerberos' numbers are negative; the library shows them as unsigned."""
    import gssapi  # noqa: PLC0415

    try:
        return work()
    except gssapi.exceptions.ExpiredCredentialsError:  # it has no number of Kerberos
        raise GssapiFailed(TICKET_EXPIRED, "Ticket expired") from None
    except gssapi.exceptions.GSSError as error:
        number, is_major = (error.min_code, False) if error.min_code else (error.maj_code, True)
        text = "; ".join(error.get_all_statuses(number, is_major))
        raise GssapiFailed(number - (1 << 32) if number >= 1 << 31 else number, text.rstrip(". ")) from None
    except NotImplementedError as error:  # another library than MIT's
        raise GssapiFailed(0, str(error)) from None
