"""``mm2py open FILE``: prints the address of a worker's web page; without a users' file it is one that works once.

The command sends nothing but a question after the health: see ``mm2py/once_code.py``. MirrorMaker 2 has no page.
"""

from __future__ import annotations

import argparse
import http.client
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandFailed, CommandParser, number_up_to
from mm2py.clock import SystemClock
from mm2py.config.configuration import read_settings_file
from mm2py.config.rest import Exposure, Listener, RestSettings
from mm2py.errors import ConfigError
from mm2py.once_code import NONCE_BYTES, VALID_MS, make_code
from mm2py.output import say
from mm2py.rest_token import TokenUnusable, read_token, token_path
from mm2py.secret import Secret
from mm2py.status.exit_codes import EXIT_DONE

ANSWER_MOST_S: Final = 10.0
"""A worker that has just started answers when its REST process is there."""


class OpenArguments(argparse.Namespace):
    """What follows ``open`` on the command line."""

    file: Path
    port: int | None


def run(arguments: Sequence[str]) -> int:
    """Print an address.

    Raises:
        ConfigError: the file is wrong, or the page is not served.
        CommandFailed: no worker answers there.
        TokenUnusable: the worker's token cannot be read.
    """
    parser = CommandParser(
        "open",
        "Prints the address of the web page of a worker on this machine. Without rest.users.file it works once, "
        f"for {VALID_MS // 60_000} minutes: it logs the browser in that opens it. Exit codes: 0 here it is; 1 no "
        "worker answers; 2 wrong file or arguments, or the page is not served.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the worker runs")
    parser.add_argument(
        "--port",
        type=number_up_to(65_535, least=1),
        help="where the worker listens, if that is not the port in listeners: with --workers, or where that is 0",
    )
    options = parser.parse_args(arguments, namespace=OpenArguments())
    settings = read_settings_file(options.file, []).configuration().rest
    listener = listener_of(settings, options.port)
    check_answers(listener)
    if settings.exposure(listener) is Exposure.READERS:
        token = _token(token_path(settings.token_file, os.environ))
        say(f"It logs in the browser that opens it first, within {VALID_MS // 60_000} minutes, and no other one.")
        print(address_with_code(listener, token, SystemClock().wall_ms(), secrets.token_bytes))  # noqa: T201
    else:
        print(address_of(listener))  # noqa: T201
    return EXIT_DONE


def listener_of(settings: RestSettings, port: int | None) -> Listener:
    """Return the listener at which the page is opened: the first that serves it. Raises: ConfigError, none does."""
    served = [one for one in settings.listeners if not one.for_probes]
    if not served:
        raise ConfigError("listeners is empty: the worker serves no REST.", remedy="Give it an address.")
    found = next((one for one in served if settings.exposure(one) is not Exposure.HEALTH), None)
    if found is None:
        raise ConfigError(
            f"Only /health, /live and /ready are served at {served[0]}, as other machines reach it.",
            remedy=f"{settings.missing(served[0])}.",
        )
    if port is None and not found.port:
        raise ConfigError(
            f"{found} is any free port.", remedy="Name it with --port; rest.listening in the worker's log says which."
        )
    return found if port is None else replace(found, port=port)


def address_of(listener: Listener) -> str:
    """Return the address for a browser on this machine."""
    here = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener.host, listener.host)  # noqa: S104
    return f"{replace(listener, host=here)}/"


def address_with_code(listener: Listener, token: Secret, now_ms: int, random_bytes: Callable[[int], bytes]) -> str:
    """Return an address that works once.

    The code stands behind ``#``, which browsers do not send: only the page's own script reads it.
    """
    return f"{address_of(listener)}#once={make_code(token, listener.port, now_ms, random_bytes(NONCE_BYTES))}"


def check_answers(listener: Listener) -> None:
    """Wait until a worker answers. Raises: CommandFailed, none does."""
    host = address_of(listener).partition("://")[2].rpartition(":")[0].strip("[]")
    remedy = "Start the worker (mm2py FILE), or name its port with --port; rest.listening in its log says which."
    try:
        if listener.is_tls:  # its certificate is the browser's to check
            socket.create_connection((host, listener.port), ANSWER_MOST_S).close()
            return
        connection = http.client.HTTPConnection(host, listener.port, timeout=ANSWER_MOST_S)
        try:
            connection.request("GET", "/health")
            connection.getresponse()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise CommandFailed(f"No worker answers at {address_of(listener)}: {error}.", remedy=remedy) from error


def _token(path: Path) -> Secret:
    try:
        return read_token(path)
    except FileNotFoundError:
        raise TokenUnusable(
            f"There is no token at {path}.",
            remedy="Call mm2py open as the user that runs the worker, in an environment like its own;"
            " rest.token in the worker's log says where its token is.",
        ) from None
