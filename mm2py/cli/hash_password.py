"""``mm2py hash-password``: prints the hash of a password or a token for the users' file of REST.

Neither is ever taken from the command line, because other users of a machine can see that.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from typing import NoReturn

from mm2py.cli.command import CommandParser
from mm2py.errors import ConfigError
from mm2py.secret import Secret
from mm2py_rest.access.hashes import TOKEN_MIN_CHARS, hash_password, hash_token


class _SilentParser(CommandParser):
    """Repeats no argument: it may be the password."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(
            "No password or token is taken from the command line: others can read it there, and the shell keeps it.",
            remedy=f"Choose another one, and type it when asked, or write it to standard input ({self.prog} --help).",
        )


def run(arguments: Sequence[str]) -> int:
    """Print a hash. Raises: ConfigError, there is no password, both entries differ, or a token is too short."""
    parser = _SilentParser(
        "hash-password",
        "Asks for a password, or reads it from standard input, and prints its hash for rest.users.file.",
    )
    parser.add_argument(
        "--token", action="store_true", help="of a bearer token instead, such as one by: openssl rand -hex 32"
    )
    options = parser.parse_args(arguments)
    secret = _read("Token: " if options.token else "Password: ", twice=not options.token)
    if options.token and len(secret.reveal()) < TOKEN_MIN_CHARS:
        raise ConfigError(
            f"The token has fewer than {TOKEN_MIN_CHARS} characters.", remedy="Make a random one: openssl rand -hex 32"
        )
    print(hash_token(secret) if options.token else hash_password(secret))  # noqa: T201  (this is what was asked for)
    return 0


def _read(prompt: str, *, twice: bool) -> Secret:
    if sys.stdin.isatty():
        secret = Secret(getpass.getpass(prompt))
        if twice and secret != Secret(getpass.getpass("Once more: ")):
            raise ConfigError("The two differ.", remedy="Type the same password twice.")
    else:
        secret = Secret(sys.stdin.readline().rstrip("\r\n"))
    if not secret:
        raise ConfigError("There is no password.", remedy="Type one, or write it to standard input, in one line.")
    return secret
