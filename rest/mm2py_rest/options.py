"""OPTIONS of each path: returns the methods of the path, as Kafka Connect (Jersey) does.

It reads nothing and changes nothing, and needs the rights of a reader. It gives pages of other sites no permission.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute

from mm2py_rest.access.callers import Role
from mm2py_rest.access.roles import ANY_READER, OPEN, required


def answer_options(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Add the method OPTIONS to all paths of an application."""
    paths: dict[str, list[APIRoute]] = {}
    for router in routers:
        for route in router.routes:
            assert isinstance(route, APIRoute)  # noqa: S101
            paths.setdefault(route.path, []).append(route)
    for path, routes in paths.items():
        served = {method for route in routes for method in route.methods or ()}
        methods = sorted(served | {"OPTIONS"} | ({"HEAD"} if "GET" in served else set()))
        is_open = any(one.role is Role.NONE for route in routes for one in required(route))
        app.add_api_route(
            path,
            _answer(methods),
            methods=["OPTIONS"],
            dependencies=[OPEN if is_open else ANY_READER],
            include_in_schema=False,
        )


def _answer(methods: list[str]) -> Callable[[], Awaitable[Response]]:
    async def options() -> Response:
        return PlainTextResponse(", ".join(methods), headers={"Allow": ",".join(methods)})

    return options
