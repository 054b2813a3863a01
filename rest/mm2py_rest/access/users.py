"""``rest.users.file``: users, what proves them, their roles and flows; read again when it changes.

One user a line, ``name:proof:role`` or ``name:proof:role:flows``. ``+recover`` behind a role lets a user recover, too.
Flows are separated by blanks; without flows the role applies to all of them. The proof of a user is one of

* ``$scrypt$...``: a password, sent as HTTP's basic authentication; ``mm2py hash-password`` makes the text.
* ``$sha256$...``: a bearer token; ``mm2py hash-password --token`` makes the text.
* ``$subject$CN=...``: the subject of a client's certificate, as in RFC 4514.
* ``$san$KIND:...``: an alternative name of a client's certificate. Its kind (DNS, URI, EMAIL, IP) is part of it;
  without a kind it is a DNS name.

A user of the machine who may write to the file decides who has access. So a file that others may change is refused.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import parse_flow
from mm2py_rest.access.callers import Role, User
from mm2py_rest.access.hashes import BadHash, PasswordHash, parse_password_hash, parse_token_hash

FILE_MAX_BYTES: Final = 1 << 20
_LINE: Final = re.compile(
    r"(?P<name>[^:\s][^:]*):(?P<proof>\$.+):(?P<role>reader|operator|admin|recover)(?P<recovers>\+recover)?(?::(?P<flows>[^:]*))?"
)
_DNS_NAME: Final = re.compile(r"(?:[\w*-]+\.)*\w*[a-z][\w-]*", re.IGNORECASE | re.ASCII)
"""The last label has a letter, so that it is no IP address."""
RECOVER: Final = "recover"
"""The role of who may recover: alone, or behind another one, as in ``operator+recover``."""
_ROLES: Final = {role.name.lower(): role for role in Role}


class UsersUnusable(Mm2Error):
    """The users' file cannot be used, so no user can log in."""


@dataclass(frozen=True, slots=True)
class Users:
    """The users of a file."""

    passwords: Mapping[str, tuple[PasswordHash, User]] = field(default_factory=dict, repr=False)
    """By the user's name."""
    tokens: tuple[tuple[bytes, User], ...] = field(default=(), repr=False)
    """Each with the digest of its token."""
    subjects: Mapping[str, User] = field(default_factory=dict)
    names: Mapping[str, User] = field(default_factory=dict)
    """By an alternative name of a certificate, as ``parse_name`` returns it."""


def parse_users(text: str, where: str) -> Users:
    """Read the lines of a users' file.

    Raises:
        UsersUnusable: a line is wrong. The message names it and repeats nothing of it.
    """
    passwords: dict[str, tuple[PasswordHash, User]] = {}
    tokens: list[tuple[bytes, User]] = []
    subjects: dict[str, User] = {}
    names: dict[str, User] = {}
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        match = _LINE.fullmatch(bare)
        if match is None:
            raise _wrong(where, number, "not name:proof:role or name:proof:role:flows, with a role that is there")
        role = _ROLES.get(match["role"], Role.READER)
        recovers = match["recovers"] is not None or match["role"] == RECOVER
        user = User(match["name"], role, _flows(match["flows"], where, number), recovers)
        if user.name in seen:
            raise _wrong(where, number, "of a user who has a line already")
        seen.add(user.name)
        kind, _, rest = match["proof"][1:].partition("$")
        try:
            match kind:
                case "scrypt":
                    passwords[user.name] = parse_password_hash(match["proof"]), user
                case "sha256":
                    tokens.append((parse_token_hash(match["proof"]), user))
                case "subject":
                    subjects[rest] = user
                case "san":
                    names[parse_name(rest)] = user
                case _:
                    raise BadHash("with a proof other than $scrypt$, $sha256$, $subject$ and $san$")
        except BadHash as bad:
            raise _wrong(where, number, str(bad)) from None
    if not seen:
        raise UsersUnusable(f"{where} names no user.", remedy="Write name:proof:role; see docs/rest-access.md.")
    return Users(passwords, tuple(tokens), subjects, names)


def parse_name(text: str) -> str:
    """Return a name of a certificate as ``KIND:name``, so that names of two kinds never match. Raises: BadHash."""
    kind, colon, rest = text.partition(":")
    kind = kind.upper() if colon else ""
    if kind == "IP":
        try:
            return f"IP:{ipaddress.ip_address(rest)}"
        except ValueError:
            raise BadHash("with $san$IP: before something that is no IP address") from None
    if (kind == "URI" and ":" in rest) or (kind == "EMAIL" and "@" in rest):
        return f"{kind}:{rest}"
    name = rest if kind == "DNS" else text
    if _DNS_NAME.fullmatch(name) is None:
        raise BadHash("with a name of unclear kind; write $san$DNS:, $san$URI:, $san$EMAIL: or $san$IP: before it")
    return f"DNS:{name.lower()}"


def _flows(text: str | None, where: str, number: int) -> frozenset[str] | None:
    if text is None or text.strip() == "*":
        return None
    try:
        found = frozenset(str(parse_flow(flow)) for flow in text.split())
    except ConfigError:
        raise _wrong(where, number, "with something that is no flow; write A->B, with blanks between flows") from None
    if not found:
        raise _wrong(where, number, "without flows behind its last colon; write them there, or * for all")
    return found


def _wrong(where: str, number: int, why: str) -> UsersUnusable:
    return UsersUnusable(f"{where}, line {number}, is {why}.", remedy="See docs/rest-access.md.")


class UsersFile:
    """The users of a file, read again when it has changed."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        """``report`` gets a sentence when a changed file cannot be used; the old content stays in use."""
        self.path = path
        self._report = report
        self._users: Users | None = None
        self._signature: tuple[int, ...] = ()
        self._reported = ""

    def current(self) -> Users:
        """Return the users; reads the file if it has changed.

        Raises:
            UsersUnusable: the file cannot be used, and no earlier content is known.
        """
        try:
            signature = _signature(self.path)
            if self._users is None or signature != self._signature:
                self._users = parse_users(_content(self.path), str(self.path))
                self._signature, self._reported = signature, ""
        except UsersUnusable as error:
            if self._users is None:
                raise
            if str(error) != self._reported:
                self._reported = str(error)
                self._report(f"{error} The users that it had before stay.")
        return self._users


def _signature(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns  # ctime also changes with the rights


def _content(path: Path) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # opening a pipe would block for ever
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise UsersUnusable(f"{path} is not a file.", remedy="Name a file in rest.users.file.")
            for named, rights in [(path, found), *((one, one.stat()) for one in folders_of(path))]:
                refuse_writable(named, rights, os.geteuid())
            data = file.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            raise UsersUnusable(f"{path} is larger than {FILE_MAX_BYTES:,} bytes.", remedy="Is it the users' file?")
        return data.decode("utf-8")
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError:
        raise UsersUnusable(f"{path} is not UTF-8.", remedy="Save it as UTF-8.") from None


def folders_of(path: Path) -> list[Path]:
    """Return the folders in which another user might replace the file: its own, and the folder to which links lead."""
    return list(dict.fromkeys((path.absolute().parent, path.resolve().parent)))


def refuse_writable(path: Path, rights: os.stat_result, own: int) -> None:
    """Refuse a file or folder that users other than this one and root may write to. Raises: UsersUnusable.

    Args:
        own: the user id of this process.
    """
    is_folder = stat.S_ISDIR(rights.st_mode)
    why, remedy = "", ""
    if rights.st_uid not in (0, own):
        why, remedy = f"belongs to user id {rights.st_uid}", f"Give it to root or to user id {own}, which runs mm2py"
    elif rights.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not (is_folder and rights.st_mode & stat.S_ISVTX):
        why, remedy = "may be written by its group or by all", f"Run chmod go-w {path}"
    if why:
        effect = "could replace the users' file" if is_folder else "could let anyone in"
        raise UsersUnusable(f"{path} {why}, who {effect}.", remedy=f"{remedy}; mm2py reads it again then.")


def _unreadable(path: Path, error: Exception) -> UsersUnusable:
    number = getattr(error, "errno", None)
    why = os.strerror(number) if number else "it cannot be read"
    return UsersUnusable(f"{path} cannot be read: {why}.", remedy="Let mm2py read it; it tries again.")
