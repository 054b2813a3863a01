"""The web page. ``GET /`` of a browser comes here (``uniform.py``); its files are at ``/page/NAME``.

It needs no user: it contains nothing of this worker, and it is what asks for the user.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Response
from fastapi.responses import PlainTextResponse

from mm2py_rest.access.roles import OPEN
from mm2py_rest.built_page import INDEX, NOT_BUILT, PageFile
from mm2py_rest.errors import RestError
from mm2py_rest.services import Shared

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing but its own files, no script or style within a page, and no request to another origin."""
KEPT: Final = "public, max-age=31536000, immutable"
router = APIRouter(include_in_schema=False, dependencies=[OPEN])
Encodings = Annotated[str, Header(alias="accept-encoding")]


@router.get("/page")
async def page(services: Shared, encodings: Encodings = "") -> Response:
    """Return the page."""
    found = services.page.file(INDEX)
    if found is None:
        return PlainTextResponse(f"{NOT_BUILT}\n", 404, {"Vary": "Accept"})
    headers = {"Content-Security-Policy": POLICY, "Cross-Origin-Opener-Policy": "same-origin"}
    return _response(found, encodings, {**headers, "Vary": "Accept, Accept-Encoding"})


@router.get("/page/{file}")
async def page_file(
    services: Shared, file: Annotated[str, Path(max_length=200)], encodings: Encodings = ""
) -> Response:
    """Return a file of the page. Its name changes with its content, so browsers keep it."""
    found = services.page.file(file) if file != INDEX else None
    if found is None:
        raise RestError(404, "The page has no such file. It was built again, perhaps: load the page again.")
    return _response(found, encodings, {"Cache-Control": KEPT, "Vary": "Accept-Encoding"})


def _response(file: PageFile, encodings: str, headers: dict[str, str]) -> Response:
    if "gzip" in encodings:
        return Response(file.zipped, 200, {**headers, "Content-Encoding": "gzip"}, file.media_type)
    return Response(file.content, 200, headers, file.media_type)
