"""The web page in the demo: REST runs beside the demo's worker, as beside any other."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.cli import rest_process
from mm2py.cli.main import make_rest_process, parse_arguments
from mm2py.cli.open_page import address_with_code
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile
from mm2py.rest_token import token_at
from mm2py.worker.herder import Herder
from mm2py_rest.built_page import INDEX, NOT_BUILT, BuiltPage

AGAIN_S: Final = 1.0


@asynccontextmanager
async def serving_page(
    path: Path, file: SettingsFile, herder: Herder, log: FilteringBoundLogger, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Serve REST while the context is open, and say the address of the page as soon as it answers.

    Args:
        path: the settings file. It names a token file and one listener.
    """
    configuration = file.configuration()
    (bound,) = rest_process.bind(configuration.rest, log)
    options = parse_arguments([str(path), "--log-level", "error", "--clusters", *configuration.groups])
    process = make_rest_process(options, [bound], herder, configuration, log)
    assert process is not None  # noqa: S101  (it listens)

    async def tell() -> None:
        if BuiltPage().file(INDEX) is None:
            say(NOT_BUILT)
            return
        listener = replace(bound.listener, port=bound.socket.getsockname()[1])
        await _until_answered(listener.host, listener.port)
        assert configuration.rest.token_file is not None  # noqa: S101  (the file of the demo names it)
        token = token_at(configuration.rest.token_file)
        address = address_with_code(listener, token, SystemClock().wall_ms(), secrets.token_bytes)
        say(f"The web page, for the browser that opens it first:\n{address}")

    work = [asyncio.create_task(process.run(), name="REST"), asyncio.create_task(tell(), name="page")]
    try:
        yield
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        bound.socket.close()


async def _until_answered(host: str, port: int) -> None:
    """Wait until REST answers: a code that was made before its process began would be refused."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if await reader.readline():
                    return
            finally:
                writer.close()
        await asyncio.sleep(AGAIN_S)
