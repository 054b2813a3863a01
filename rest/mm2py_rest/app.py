"""The REST application: its routes and its error answers. ``mm2py_rest/access`` decides who may use which route."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from mm2py import __version__
from mm2py_rest.access.roles import check_roles
from mm2py_rest.errors import tell_errors
from mm2py_rest.options import answer_options
from mm2py_rest.routes import (
    connectors,
    description,
    lifecycle,
    loggers,
    loss_changes,
    offsets,
    page,
    pauses,
    plugins,
    recoveries,
    restarts,
    session,
    v1,
    worker,
)
from mm2py_rest.services import Services

RESOURCES: Final = (
    *v1.RESOURCES,  # first: most requests are for these, and routes are searched in this order
    *(
        worker,
        connectors,
        lifecycle,
        offsets,
        plugins,
        loggers,
        restarts,
        pauses,
        recoveries,
        loss_changes,
        page,
        session,
        description,
    ),
)


def make_app(services: Services) -> FastAPI:
    """Return the application of one worker. It answers only requests that a ``RequestGate`` has admitted.

    Raises:
        RuntimeError: a route states no role.
    """
    check_roles(resource.router for resource in RESOURCES)
    app = FastAPI(
        title="mm2py",
        version=__version__,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # routes/description.py serves it, to readers
    )
    app.state.services = services
    tell_errors(app)
    for resource in RESOURCES:
        app.include_router(resource.router)
    answer_options(app, [resource.router for resource in RESOURCES])
    return app
