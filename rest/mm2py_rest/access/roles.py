"""The role that each route states. The application does not start if a route states none.

    router = APIRouter(dependencies=[READER])

    @router.put("/{name}/config", dependencies=[ADMIN])

Where a router and its route both state a role, the caller needs both. A route names its flow in its path: as ``flow``,
or as the ``name`` of one of its connectors. Users who do not have that flow are refused. A route without a flow in its
path refuses users who do not have all flows, unless it checks the flows itself (``ANY_READER``), by ``Who``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from mm2py.flow import ARROW
from mm2py.login import host_name
from mm2py.records.author import REASON_MOST, Author, checked_reason
from mm2py_rest.access.authentication import unauthorized
from mm2py_rest.access.callers import Caller, Role
from mm2py_rest.errors import RestError

CALLER_KEY: Final = "caller"
"""Key in the state of a request: its ``Caller``."""
LOGIN_KEY: Final = "login"
"""Key in the state of a request: its ``Login``."""
STILL_KEY: Final = "still"
"""Key in the state of a request: a function that returns the caller with its rights now, or raises RestError."""
HEALTH_PATHS: Final = frozenset({"/health", "/live", "/ready"})
"""What probes ask for: every listener serves these, to all who reach it, and however many others ask."""
_FLOW_PARAMETERS: Final = ("flow", "name", "connector")


class Login(StrEnum):
    """What the page may log in with at a listener."""

    USERS = "users"
    """A user of the users' file."""
    TOKEN = "token"  # noqa: S105  (the name of a proof)
    """The token of the worker, or an address of ``mm2py open``."""
    NONE = "none"
    """Nothing: no user is asked for."""


@dataclass(frozen=True, slots=True)
class Requires:
    """A dependency that lets callers of a role through."""

    role: Role
    any_flow: bool = False
    """The route itself shows each caller only the caller's flows."""
    recovers: bool = False
    """The caller needs the role ``recover`` as well, and both directions: each is turned round."""

    async def __call__(self, request: Request) -> None:
        """Raises: RestError, 401 no user is known, or 403 this caller may not."""
        if self.role is not Role.NONE:  # async, though nothing waits: else FastAPI would use a thread
            self.check(caller_of(request), request.path_params)

    def check(self, caller: Caller, parameters: Mapping[str, object]) -> None:
        """Check a caller; ``parameters`` are those of the path. Raises: RestError 403, this caller may not."""
        if caller.user.role < self.role:
            raise RestError(403, f"{caller.user.name} is {_A[caller.user.role]}; this takes {_A[self.role]}.")
        flow = flow_of_path(parameters)
        if flow is None and not caller.sees_all and not self.any_flow:
            raise RestError(403, f"{caller.user.name} may only use some flows; this takes a user of all.")
        if flow is not None and not caller.may_see(flow):
            raise RestError(403, f"{caller.user.name} may not use this flow.")
        if self.recovers:
            self._check_recovers(caller, flow)

    def _check_recovers(self, caller: Caller, flow: str | None) -> None:
        name = caller.user.name
        if not caller.user.recovers:
            raise RestError(403, f"{name} may not recover clusters; this takes a user with the role recover.")
        source, arrow, target = (flow or "").partition(ARROW)
        if not caller.may_see(f"{target}{arrow}{source}"):
            raise RestError(403, f"{name} may not use the flow back, which a recovery turns round as well.")

    def still_holds(self, request: Request) -> Callable[[], Awaitable[bool]]:
        """Return a function that checks, during a long answer, whether its caller may still receive it.

        It reads only the users' file: neither load nor other requests from the caller's address change its result.
        """
        still = getattr(request.state, STILL_KEY, None)

        async def holds() -> bool:
            try:
                if still is not None:
                    self.check(still(), request.path_params)
            except RestError:
                return False
            return True

        return holds


_A: Final = {
    Role.NONE: "a user without a role",
    Role.READER: "a reader",
    Role.OPERATOR: "an operator",
    Role.ADMIN: "an admin",
}
OPEN: Final = Depends(Requires(Role.NONE))
READS: Final = Requires(Role.READER)
READER: Final = Depends(READS)
ANY_READER: Final = Depends(Requires(Role.READER, any_flow=True))
OPERATOR: Final = Depends(Requires(Role.OPERATOR))
ADMIN: Final = Depends(Requires(Role.ADMIN))
RECOVERER: Final = Depends(Requires(Role.READER, recovers=True))


def caller_of(request: Request) -> Caller:
    """Return the caller of a request. Raises: RestError 401, no ``RequestGate`` has admitted the request."""
    caller = getattr(request.state, CALLER_KEY, None)
    if not isinstance(caller, Caller):
        raise unauthorized("This request came in without being asked who sends it.")
    return caller


async def _who(request: Request) -> Caller:
    return caller_of(request)


Who = Annotated[Caller, Depends(_who)]

WHY: Final = "why, for those who read the history of the flow: one line, no secrets. Clients of Connect send none"


async def _asker(
    request: Request, reason: Annotated[str | None, Query(max_length=REASON_MOST, description=WHY)] = None
) -> Author:
    return Author(caller_of(request).user.name, host_name(), checked_reason(reason or ""))


Asker = Annotated[Author, Depends(_asker)]
"""The user who asks for a change, and the reason. Both are stored with the change."""


def flow_of_path(parameters: Mapping[str, object]) -> str | None:
    """Return the flow that a path names, as ``A->B``."""
    for parameter in _FLOW_PARAMETERS:
        value = parameters.get(parameter)
        if isinstance(value, str):
            return value if parameter == "flow" else value.rpartition(".")[0]
    return None


def required(route: BaseRoute) -> list[Requires]:
    """Return the roles that a route states."""
    if not isinstance(route, APIRoute):
        return []
    return [one.dependency for one in route.dependencies if isinstance(one.dependency, Requires)]


def check_roles(routers: Iterable[APIRouter]) -> None:
    """Check that all routes state a role. Raises: RuntimeError, a route states none; the application must not start."""
    silent = [
        getattr(route, "path", str(route)) for router in routers for route in router.routes if not required(route)
    ]
    if silent:
        raise RuntimeError(f"These routes state no role (rest/mm2py_rest/access/roles.py): {', '.join(silent)}")
