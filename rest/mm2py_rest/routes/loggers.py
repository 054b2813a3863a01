"""``/admin/loggers``: the log level of the workers. There is one logger, ``root``.

Connect changes Log4j's loggers, of one worker or of all. A level lasts until the worker ends.
Source: LoggingResource, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Response

from mm2py.logs import CONNECT_LEVELS
from mm2py.secret import shown_name
from mm2py_rest.access.roles import ADMIN, READER, Asker
from mm2py_rest.errors import RestError
from mm2py_rest.models import LoggerLevel
from mm2py_rest.services import Services, Shared

ROOT: Final = "root"

router = APIRouter(prefix="/admin/loggers", tags=["loggers"])


@router.get("", dependencies=[READER])
async def list_loggers(services: Shared) -> dict[str, LoggerLevel]:
    """Return the level of this worker's log."""
    return {ROOT: await _level(services)}


@router.get("/{logger}", dependencies=[READER], responses={404: {"description": "there is no such logger"}})
async def get_logger(services: Shared, logger: str) -> LoggerLevel:
    """Return the level of this worker's log."""
    _check(logger)
    return await _level(services)


@router.put(
    "/{logger}",
    dependencies=[ADMIN],
    response_model=list[str],
    responses={204: {}, 404: {"description": "no such logger or level"}},
)
async def set_level(
    services: Shared,
    logger: str,
    wanted: Annotated[dict[str, Any], Body(examples=[{"level": "DEBUG"}])],
    asker: Asker,
    scope: Annotated[str, Query(description="worker: this one; cluster: all that run the same flows")] = "worker",
) -> Any:
    """Log from now on at this level; ``scope=cluster`` on all workers, otherwise on this one."""
    _check(logger)
    level = wanted.get("level")
    if level is None:
        raise RestError(400, "Desired 'level' parameter was not specified in request.")
    name = level.upper() if isinstance(level, str) else ""
    if name not in CONNECT_LEVELS:
        raise RestError(404, f"Invalid log level. There are {', '.join(CONNECT_LEVELS)}.")
    if scope.lower() != "cluster":
        await services.link.set_log_level(CONNECT_LEVELS[name])
        return [ROOT]
    await asyncio.gather(*(changes.set_log_level(name, asker) for changes in services.changes.values()))
    return Response(status_code=204)


def _check(logger: str) -> None:
    if logger != ROOT:
        raise RestError(404, f"Logger {shown_name(logger)} not found. There is only {ROOT}.")


async def _level(services: Services) -> LoggerLevel:
    found = await services.link.log_level()
    return LoggerLevel(level=next(name for name, ours in CONNECT_LEVELS.items() if ours == found))
