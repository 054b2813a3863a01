"""The REST application: its routes, and how it tells errors."""

from __future__ import annotations

from fastapi import FastAPI

from mm2py import __version__
from rest.errors import tell_errors
from rest.routes import connectors, worker
from rest.services import Services


def make_app(services: Services) -> FastAPI:
    """Return the application of one worker."""
    app = FastAPI(
        title="mm2py",
        version=__version__,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.services = services
    tell_errors(app)
    for resource in (worker, connectors):
        app.include_router(resource.router)
    return app
