"""``mm2py health FILE``: whether the worker of this machine is ready, or at least lives; for probes and health checks.

It asks the worker's own REST process, sends no secret, and looks at no cluster. Kafka Connect leaves this to its users.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandFailed, CommandParser, number_up_to
from mm2py.config.configuration import read_settings_file
from mm2py.config.rest import Listener, RestSettings
from mm2py.errors import ConfigError
from mm2py.output import write_out
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED

ANSWER_MOST_S: Final = 8.0
"""A REST process answers within five seconds, also where its worker does not."""
ANSWER_MAX_BYTES: Final = 1 << 16


class HealthArguments(argparse.Namespace):
    """What follows ``health`` on the command line."""

    file: Path
    live: bool
    port: int | None


def parse_arguments(arguments: Sequence[str]) -> HealthArguments:
    """Read what follows ``health`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "health",
        "Asks the worker of this machine whether it is ready, over its REST. It is not until one of its flows has run,"
        " while it stops, and while it copies nothing because of itself. A cluster that falls silent later does not"
        " make it unready. Exit"
        " codes: 0 it is; 1 it is not, or does not answer; 2 wrong file or arguments, or the worker serves no REST.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the worker runs")
    parser.add_argument("--live", action="store_true", help="only ask whether it lives, also while it starts or stops")
    parser.add_argument(
        "--port",
        type=number_up_to(65_535, least=1),
        help="where the worker listens, if the file does not say it: with --workers, or where a port is 0",
    )
    return parser.parse_args(arguments, namespace=HealthArguments())


def run(arguments: Sequence[str]) -> int:
    """Ask, print the answer in a line, and return the exit code.

    Raises:
        ConfigError: the file is wrong, or the worker serves no REST.
        CommandFailed: no worker answers.
    """
    options = parse_arguments(arguments)
    listener = asked_listener(read_settings_file(options.file, []).configuration().rest, options.port)
    is_good, told = ask(listener, "/live" if options.live else "/ready")
    write_out(f"{told}\n")
    return EXIT_DONE if is_good else EXIT_FAILED


def asked_listener(settings: RestSettings, port: int | None) -> Listener:
    """Return the listener to ask, as this machine reaches it: one without TLS if there is one, as no secret is sent.

    Raises:
        ConfigError: there is none, or its port is not known.
    """
    if not settings.listeners:
        raise ConfigError("listeners is empty: the worker serves no REST.", remedy="Set listeners or admin.listeners.")
    known = [one for one in settings.listeners if one.port or port]
    if not known:
        raise ConfigError(
            f"{settings.listeners[0]} is any free port.",
            remedy="Name it with --port; rest.listening in the worker's log says which.",
        )
    found = min(known, key=lambda one: one.is_tls)  # the first of its kind
    here = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(found.host, found.host)  # noqa: S104
    return replace(found, host=here, port=port or found.port)


def ask(listener: Listener, path: str) -> tuple[bool, str]:
    """Return whether a worker says that all is well, and its sentence. Raises: CommandFailed, none answers."""
    connection = _connection(listener)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = json.loads(answer.read(ANSWER_MAX_BYTES))
        return answer.status == http.client.OK, f"{body['status']}: {body['message']}"
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise CommandFailed(
            f"No worker answers at {listener}{path}: {type(error).__name__}: {error}.",
            remedy="Start the worker (mm2py FILE), or name its port with --port; rest.listening in its log says which.",
        ) from error
    finally:
        connection.close()


def _connection(listener: Listener) -> http.client.HTTPConnection:
    if not listener.is_tls:
        return http.client.HTTPConnection(listener.host, listener.port, timeout=ANSWER_MOST_S)
    context = ssl.create_default_context()
    context.check_hostname = False  # its certificate is for other names than this address, and no secret is sent
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(listener.host, listener.port, timeout=ANSWER_MOST_S, context=context)
