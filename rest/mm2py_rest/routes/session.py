"""``/session``: a browser logs in, asks who it is, and logs out. For the web page alone."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from mm2py.status.bodies import JsonBody
from mm2py_rest.access.roles import ANY_READER, LOGIN_KEY, Login, Who
from mm2py_rest.access.sessions import IDLE_S, SESSION_PATH, Session, cookie_name, cookie_of
from mm2py_rest.errors import RestError
from mm2py_rest.services import Shared

PROOFS: Final = frozenset({"password", "token", "once"})
router = APIRouter(include_in_schema=False, prefix=SESSION_PATH, dependencies=[ANY_READER])


class SessionBody(JsonBody):
    """Who asks."""

    user: str
    role: str
    recovers: bool
    """The user may recover, too."""
    flows: tuple[str, ...] | None
    """Null: all."""
    login: Login
    """What a browser may log in with."""
    is_session: bool
    """The request came with a session, which can be ended."""
    ends_in_s: float | None
    """After that the session ends, however much it is used."""
    idle_s: float
    """It ends as well when it is not used for so long."""


@router.get("")
async def get_session(services: Shared, who: Who, request: Request) -> SessionBody:
    """Return the user of this request and what the user may do."""
    session = who.evidence if isinstance(who.evidence, Session) else None
    return SessionBody(
        user=who.user.name,
        role=who.user.role.name.lower(),
        recovers=who.user.recovers,
        flows=None if who.user.flows is None else tuple(sorted(who.user.flows)),
        login=getattr(request.state, LOGIN_KEY, Login.NONE),
        is_session=session is not None,
        ends_in_s=None if session is None else services.sessions.left_s(session),
        idle_s=IDLE_S,
    )


@router.post("", status_code=201)
async def begin_session(services: Shared, who: Who, request: Request) -> Response:
    """Begin a session for the user whom this request proves."""
    if who.proof not in PROOFS:
        raise RestError(409, "A session begins with a password, a token, or an address of mm2py open.")
    return _answer(201, request, services.sessions.begin(who))


@router.delete("", status_code=204)
async def end_session(services: Shared, who: Who, request: Request) -> Response:
    """End the session of this request, if it has one."""
    if isinstance(who.evidence, Session):
        services.sessions.end(who.evidence)
    return _answer(204, request, "")


def _answer(status: int, request: Request, value: str) -> Response:
    is_tls = request.url.scheme == "https"
    name = cookie_name(request.headers.get("host", ""), is_tls=is_tls)
    return Response(status_code=status, headers={"Set-Cookie": cookie_of(name, value, is_tls=is_tls)})
