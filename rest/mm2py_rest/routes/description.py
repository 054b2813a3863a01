"""``/openapi.json``: the description of this REST API, for tools."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from mm2py_rest.access.roles import ANY_READER

router = APIRouter(include_in_schema=False, dependencies=[ANY_READER])


@router.get("/openapi.json")
async def openapi(request: Request) -> dict[str, Any]:
    """Return the description of all routes."""
    found: dict[str, Any] = request.app.openapi()
    return found
