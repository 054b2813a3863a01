"""Errors in the shape of Kafka Connect's REST API: ``{"error_code": 404, "message": "..."}``."""

from __future__ import annotations

import secrets
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from mm2py.connector_offsets.altering import NotStopped, StillRunning
from mm2py.connector_offsets.offsets_body import OffsetsInvalid
from mm2py.errors import ConfigError, Mm2Error
from mm2py.secret import shown_name
from mm2py.shared_settings.flow_owner import FlowOfAnotherGroup
from mm2py.shared_settings.running_mm2 import Mm2IsRunning
from mm2py_rest.clusters.live import NothingKnown
from mm2py_rest.settings.changes import Conflict, Invalid
from mm2py_rest.worker_link import WorkerSilent

ERROR_MARK_KEY: Final = "error_mark"
"""Key in the state of a request: the mark by which its error is found in the log."""


class RestError(Exception):
    """A request is refused, with a status code that says why."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def error_body(status: int, message: str) -> dict[str, object]:
    """Return the body of an error."""
    return {"error_code": status, "message": message}


def _answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(error_body(status, message), status, headers)


def tell_errors(app: FastAPI) -> None:
    """Make an application answer all errors in this shape. They never repeat what the client sent."""

    @app.exception_handler(RestError)
    async def refused(_: Request, error: RestError) -> JSONResponse:
        return _answer(error.status, str(error), error.headers)

    @app.exception_handler(HTTPException)
    async def no_such_path(_: Request, error: HTTPException) -> JSONResponse:
        return _answer(error.status_code, f"HTTP {error.status_code} {error.detail}", dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def not_understood(_: Request, error: RequestValidationError) -> JSONResponse:
        told = [f"{'.'.join(shown_name(str(part)) for part in each['loc'])}: {each['msg']}" for each in error.errors()]
        return _answer(400, "The request cannot be understood: " + "; ".join(told))

    @app.exception_handler(NothingKnown)
    async def unknown(_: Request, error: NothingKnown) -> JSONResponse:
        return _answer(503, str(error), {"Retry-After": "5"})

    @app.exception_handler(WorkerSilent)
    async def silent(_: Request, error: WorkerSilent) -> JSONResponse:
        return _answer(503, str(error), {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def of_ours(request: Request, _: Exception) -> JSONResponse:
        mark = request.scope.setdefault("state", {})[ERROR_MARK_KEY] = secrets.token_hex(4)
        return _answer(500, f"An error of mm2py. The log of this worker has it as rest.error, mark={mark}.")

    @app.exception_handler(Invalid)
    async def invalid(_: Request, error: Invalid) -> JSONResponse:
        return _answer(400, str(error))

    @app.exception_handler(Conflict)
    async def conflict(_: Request, error: Conflict) -> JSONResponse:
        return _answer(409, str(error), {"Retry-After": "1"})

    @app.exception_handler(OffsetsInvalid)
    @app.exception_handler(NotStopped)
    async def not_altered(_: Request, error: Mm2Error) -> JSONResponse:
        return _answer(400, str(error))

    @app.exception_handler(StillRunning)
    async def still_running(_: Request, error: StillRunning) -> JSONResponse:
        return _answer(409, str(error), {"Retry-After": "1"})

    @app.exception_handler(Mm2IsRunning)
    @app.exception_handler(FlowOfAnotherGroup)
    async def runs_elsewhere(_: Request, error: Mm2Error) -> JSONResponse:
        return _answer(409, str(error))

    @app.exception_handler(TimeoutError)
    async def silent_target(_: Request, error: TimeoutError) -> JSONResponse:
        return _answer(500, "Request timed out. The target cluster does not answer.")

    @app.exception_handler(Mm2Error)
    async def not_done(_: Request, error: Mm2Error) -> JSONResponse:
        return _answer(400 if isinstance(error, ConfigError) else 503, str(error))
