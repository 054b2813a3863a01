"""Checks each request of one listener before the routes see it, and leaves an audit event of each change.

It is an ASGI application around another one. It checks in this order: calls that MirrorMaker 2's processes send each
other, the host and the origin, what the listener serves, the user, the body. It reads no body before the user is known.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.rest import Exposure
from mm2py.secret import shown_name
from mm2py_rest.access.audit import Audit, shown_body
from mm2py_rest.access.authentication import Authentication, unauthorized
from mm2py_rest.access.callers import ANONYMOUS, ANONYMOUS_READER, EVERYONE, Caller
from mm2py_rest.access.hosts import is_own_host, is_own_page
from mm2py_rest.access.json_bodies import BadBody, parse_json
from mm2py_rest.access.local_token import READING, LocalToken
from mm2py_rest.access.roles import CALLER_KEY, HEALTH_PATHS, LOGIN_KEY, STILL_KEY, Login, flow_of_path
from mm2py_rest.access.sessions import PAGE_HEADER, SESSION_PATH, Session, Sessions, cookie_name, names_of
from mm2py_rest.access.users import UsersUnusable
from mm2py_rest.errors import ERROR_MARK_KEY, RestError, error_body
from mm2py_rest.uniform import PAGE_PATH, Message, Scope, Send, uniform

Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEAD_MAX_BYTES: Final = 16 << 10
BODY_MAX_BYTES: Final = 1 << 20
BODY_MOST_S: Final = 10.0
PATH_KEPT_MOST: Final = 500
CERTIFICATE_KEY: Final = "certificate"
"""Key in the state of a request: the client's verified certificate in DER, or None."""
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OF_MM2: Final = re.compile(r"(?:/[^/]+/[^/]+)?/connectors/[^/]+/(tasks|fence)")
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class RequestGate:
    """Lets requests through to the routes."""

    def __init__(  # noqa: PLR0913  (a listener has all of these)
        self,
        app: App,
        exposure: Exposure,
        *,
        audit: Audit,
        log: FilteringBoundLogger,
        sessions: Sessions | None = None,
        authentication: Authentication | None = None,
        token: LocalToken | None = None,
        names: Collection[str] = (),
        missing: str = "",
    ) -> None:
        """Make the gate of one listener.

        Args:
            sessions: of the web page.
            authentication: with ``Exposure.USERS``.
            token: with ``Exposure.READERS``.
            names: the names that ``Host`` may contain, in lower case; addresses and localhost are always accepted.
            missing: what the operator must do so that this listener serves more than the health.
        """
        assert (authentication is not None) or exposure is not Exposure.USERS  # noqa: S101
        assert (token is not None) or exposure is not Exposure.READERS  # noqa: S101
        self._app = app
        self._exposure = exposure
        self._audit = audit
        self._log = log
        self._sessions = sessions
        self._authentication = authentication
        self._token = token
        self._names = frozenset(names)
        self._missing = missing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope, send = uniform(scope, send)
            await _Request(self, scope, receive, send).serve()
        elif scope["type"] != "lifespan":
            raise RuntimeError("mm2py serves HTTP and nothing else.")

    async def admit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Caller:
        """Return the caller. Raises: RestError, the request is refused."""
        method, path = scope["method"], scope["path"]
        internal = _OF_MM2.fullmatch(path)
        if internal is not None and method == {"tasks": "POST", "fence": "PUT"}[internal[1]]:
            raise RestError(
                410,
                "MirrorMaker 2's processes call each other here. Those of mm2py never do: they share settings and tasks"
                " by topics on the target. Stop the MirrorMaker 2 that asks, or give mm2py another port.",
            )
        self._check_site(path, headers)
        address = scope["client"][0] if scope.get("client") else ""
        is_reading = method in READING
        is_health = is_reading and path in HEALTH_PATHS
        is_open = is_health or (is_reading and f"{path}/".startswith(f"{PAGE_PATH}/"))
        match self._exposure:
            case Exposure.EVERYONE:
                return Caller(EVERYONE, address, "none")
            case Exposure.READERS:
                assert self._token is not None  # noqa: S101
                if (of_session := self._caller_of_session(scope, headers, address)) is not None:
                    return of_session
                scheme, _, code = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
                if scheme.lower() == "once" and (method, path) == ("POST", SESSION_PATH):
                    return self._token.caller_of_code(code.strip(), address, scope["server"][1])
                return self._token.caller(method, headers.get(b"authorization"), address)
            case Exposure.PROBES:
                if not is_health and not (is_reading and path == "/metrics"):
                    raise RestError(
                        403, "admin.listeners serve /health, /live, /ready and /metrics; the rest is at listeners."
                    )
                return Caller(ANONYMOUS_READER, address, "none")
            case Exposure.HEALTH:
                if not is_health:
                    raise RestError(
                        403,
                        "Only /health, /live and /ready are served here, as other machines reach this listener."
                        f" {self._missing}.",
                    )
                return Caller(ANONYMOUS, address, "none")
            case Exposure.USERS:
                if is_open:
                    return Caller(ANONYMOUS, address, "none")
                assert self._authentication is not None  # noqa: S101
                certificate = scope.get("state", {}).get(CERTIFICATE_KEY)
                try:
                    if (of_session := self._caller_of_session(scope, headers, address)) is not None:
                        return of_session
                    return await self._authentication.caller(headers.get(b"authorization"), address, certificate)
                except UsersUnusable as error:
                    raise RestError(503, f"No user can be let in: {error}", {"Retry-After": "5"}) from error

    def still(self, caller: Caller) -> Caller:
        """Return an earlier caller with the rights it has now. Raises: RestError, it has none any more."""
        session = caller.evidence
        if isinstance(session, Session):
            if self._sessions is None or not self._sessions.goes_on(session):
                raise unauthorized("This session has ended.")
            return self._of_session(session, caller.address)
        if caller.evidence is None or self._authentication is None:
            return caller
        return self._authentication.still(caller)

    def _caller_of_session(self, scope: Scope, headers: Mapping[bytes, bytes], address: str) -> Caller | None:
        """Return the user of the page's session, as it is now; None: the request has none, or has another proof."""
        if self._sessions is None or b"authorization" in headers:
            return None
        cookie = cookie_name(headers.get(b"host", b"").decode("latin-1"), is_tls=scope["scheme"] == "https")
        session = self._sessions.used(names_of(headers, cookie))
        if session is None:
            return None
        try:
            return self._of_session(session, address)
        except RestError:  # the user, the password or the token was changed
            self._sessions.end(session)
            return None

    def _of_session(self, session: Session, address: str) -> Caller:
        """Raises: RestError 401, its user is not the same any more; UsersUnusable."""
        prover = self._authentication or self._token
        assert prover is not None  # noqa: S101  (else no session begins)
        return replace(prover.still(session.caller), address=address, proof="session", evidence=session)

    @property
    def login(self) -> Login:
        """What the page may log in with."""
        return {Exposure.USERS: Login.USERS, Exposure.READERS: Login.TOKEN}.get(self._exposure, Login.NONE)

    def _check_site(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if host and path not in HEALTH_PATHS and not is_own_host(host, self._names):
            raise RestError(403, "This worker is not called so. Name the host of your request in rest.hosts.")
        origin = headers.get(b"origin")
        if origin is not None and not is_own_page(origin.decode("latin-1"), host):
            raise RestError(403, "Pages of other sites may not ask.")

    def tell(self, scope: Scope, caller: Caller, status: int, version: str, body: Any) -> None:
        """Leave an audit event of a call that changes something."""
        self._audit.tell(
            caller,
            scope["method"],
            _shown_path(scope, status),
            flow=shown_name(flow_of_path(scope.get("path_params", {})) or ""),
            status=status,
            version=version,
            body=shown_body(body, with_values=200 <= status < 300 and not scope["path"].endswith("/validate")),
        )

    def failed(self, scope: Scope, error: Exception) -> None:
        """Log an internal error. The answer to the caller contains its mark and nothing else."""
        mark = scope.get("state", {}).get(ERROR_MARK_KEY, "")
        self._log.error("rest.error", mark=mark, method=scope["method"], path=_shown_path(scope), exc_info=error)

    @property
    def app(self) -> App:
        """The application that receives the admitted requests."""
        return self._app


def _shown_path(scope: Scope, status: int = 0) -> str:
    """Return the path in a form that may be logged. A call that succeeded contains only known names."""
    path: str = scope["path"]
    if not 200 <= status < 300:
        path = "/".join(shown_name(name) for name in path[: 2 * PATH_KEPT_MOST].split("/"))
    return path[:PATH_KEPT_MOST]


class _Request:
    """One request on its way in, and its answer on the way out."""

    def __init__(self, gate: RequestGate, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate = gate
        self._scope = scope
        self._receive = receive
        self._send = send
        self._status = 0
        """Status of the answer; 0: there is none yet."""
        self._is_answered = False
        self._is_of_page = False
        """A page sent it, ours or another one, and no user who has typed an address."""
        self._version = ""
        self._body: Any = None
        self._pending: list[Message] = []
        """What the routes receive next."""

    async def serve(self) -> None:
        caller = None
        try:
            if self._scope.get("http_version", "1.1") not in ("1.0", "1.1"):
                raise RestError(505, "mm2py speaks HTTP/1.1.")
            names = [name for name, _ in self._scope["headers"]]
            headers = dict(self._scope["headers"])
            self._is_of_page = PAGE_HEADER in headers or (
                b"sec-fetch-mode" in headers and headers[b"sec-fetch-mode"] != b"navigate"
            )
            if sum(len(name) + len(value) for name, value in self._scope["headers"]) > HEAD_MAX_BYTES:
                raise RestError(431, f"The headers have more than {HEAD_MAX_BYTES:,} bytes.")
            for name in (b"host", b"authorization", b"content-type", b"origin"):
                if names.count(name) > 1:
                    raise RestError(400, f"There are two headers {name.decode()}.")
            caller = await self._gate.admit(self._scope, headers)
            state = self._scope.setdefault("state", {})
            state[CALLER_KEY] = caller
            state[LOGIN_KEY] = self._gate.login
            state[STILL_KEY] = functools.partial(self._gate.still, caller)
            self._pending = [{"type": "http.request", "body": await self._read(headers), "more_body": False}]
            await self._gate.app(self._scope, self._next, self._answer)
        except RestError as error:
            await self._refuse(error)
        except Exception as error:
            self._gate.failed(self._scope, error)
            if not self._is_answered:
                raise RuntimeError("No answer, or half of one.") from None  # the server ends the connection
        finally:
            if caller is not None and self._scope["method"] in _CHANGING:
                self._gate.tell(self._scope, caller, self._status, self._version, self._body)

    async def _read(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the body. Raises: RestError, it is not JSON, is too large, or does not arrive in time."""
        length = headers.get(b"content-length", b"0")
        is_chunked = b"transfer-encoding" in headers
        if is_chunked and b"content-length" in headers:
            raise RestError(400, "There are both a Content-Length and a Transfer-Encoding.")
        if not is_chunked and not length.strip(b"0"):
            return b""
        if len(length) > 18 or not length.isdigit() or int(length) > BODY_MAX_BYTES:
            raise RestError(413, f"The body has more than {BODY_MAX_BYTES:,} bytes.")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise RestError(415, "HTTP 415 Unsupported Media Type: send application/json.")
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_MOST_S):
                while True:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        raise RestError(400, "The body broke off.")
                    body += message.get("body", b"")
                    if len(body) > BODY_MAX_BYTES:
                        raise RestError(413, f"The body has more than {BODY_MAX_BYTES:,} bytes.")
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise RestError(408, f"The body did not come within {BODY_MOST_S:g} s.") from None
        if not body:
            return b""
        try:
            self._body = parse_json(bytes(body))
        except BadBody as bad:
            raise RestError(400, f"The body {bad}") from None
        return bytes(body)

    async def _next(self) -> Message:
        return self._pending.pop() if self._pending else await self._receive()

    async def _answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = list(message.get("headers", ()))
            if self._is_of_page:  # else the browser would ask for a password itself, and keep it
                headers = [
                    (name, b'Session realm="mm2py"' if name.lower() == b"www-authenticate" else value)
                    for name, value in headers
                ]
            given = {name.lower(): value for name, value in headers}
            self._version = given.get(b"etag", b"").decode("latin-1").strip('"')
            message["headers"] = [*headers, *((name, value) for name, value in _HEADERS if name not in given)]
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._is_answered = True

    async def _refuse(self, error: RestError) -> None:
        body = json.dumps(error_body(error.status, str(error))).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),  # the rest of the body is not read
            *((name.encode(), value.encode()) for name, value in (error.headers or {}).items()),
        ]
        await self._answer({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._answer({"type": "http.response.body", "body": body})
