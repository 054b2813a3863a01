"""The token that lets a user of this machine change things over REST: a file that only its owner can read.

Where ``rest.users.file`` names no users, each worker asks for this token. All workers that run as one user of one
machine share the file: the first one makes it. It is read again for each request, so a deleted file is made again.
Kafka Connect has nothing like it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.secret import Secret

PROVEN_USER: Final = "mm2py"
"""The name that goes with the token in HTTP's basic authentication, and that the history shows."""
_NAME: Final = "rest.token"
_BYTES_MAX: Final = 1024
_TOKEN: Final = re.compile(rb"[0-9A-Za-z_-]{32,256}\n?")
_DELETE: Final = "Delete it: the worker makes a new one at the next change."
_ELSEWHERE: Final = "Set rest.token.file to a file in a folder to which only the user of mm2py may write."


class TokenUnusable(Mm2Error):
    """There is no token that could be trusted, so nothing can be changed with it."""


def token_path(named: Path | None, environment: Mapping[str, str]) -> Path:
    """Return where the token is, for workers and for those who ask them.

    Args:
        named: by ``rest.token.file``.
        environment: of the process. systemd's ``RUNTIME_DIRECTORY`` comes first, then the user's state folder.
    Raises:
        TokenUnusable: there is no such place.
    """
    if named is not None:
        return named
    runtime = environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if os.path.isabs(runtime):
        return Path(runtime, _NAME)
    state = environment.get("XDG_STATE_HOME", "")
    home = environment.get("HOME", "")
    if os.path.isabs(state):
        return Path(state, "mm2py", _NAME)
    if os.path.isabs(home):
        return Path(home, ".local", "state", "mm2py", _NAME)
    raise TokenUnusable("There is no place for the token of REST, as HOME is not set.", remedy=_ELSEWHERE)


def read_token(path: Path) -> Secret:
    """Return the token.

    Raises:
        FileNotFoundError: no worker has made it yet.
        TokenUnusable: another user may know it or have written it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise TokenUnusable(f"{path} is a symbolic link.", remedy=_DELETE) from None
        raise _failed(path, error) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise TokenUnusable(f"{path} is not a file.", remedy=_ELSEWHERE)
        if found.st_uid != os.geteuid():
            raise TokenUnusable(f"{path} belongs to another user.", remedy=_ELSEWHERE)
        if found.st_mode & 0o077:
            raise TokenUnusable(f"Other users may read or write {path}.", remedy=_DELETE)
        text = os.read(descriptor, _BYTES_MAX)
    except OSError as error:
        raise _failed(path, error) from None
    finally:
        os.close(descriptor)
    if _TOKEN.fullmatch(text) is None:
        raise TokenUnusable(f"{path} holds no token.", remedy=_DELETE)
    return Secret(text.decode("ascii").rstrip("\n"))


def token_at(path: Path) -> Secret:
    """Return the token. Make it if it is not there, in a folder that only we may enter.

    The story: two workers start at once. The file gets its name when its content is whole, so neither reads half a
    token. The second worker finds that the name is taken, and reads what the first one has written.

    Raises:
        TokenUnusable: it cannot be made here, or what is here cannot be trusted.
    """
    try:
        return read_token(path)
    except FileNotFoundError:
        pass
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = path.parent.stat()
        if folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX:
            raise TokenUnusable(f"Other users may replace files in {path.parent}.", remedy=_ELSEWHERE)
        _make(path)
        return read_token(path)
    except OSError as error:
        raise _failed(path, error) from None


def _make(path: Path) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_hex(32)}\n")
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path)
    except FileExistsError:
        pass  # another worker was first
    finally:
        draft.unlink()


def _failed(path: Path, error: OSError) -> TokenUnusable:
    return TokenUnusable(f"{path} cannot be used: {os.strerror(error.errno or errno.EIO)}.", remedy=_ELSEWHERE)
