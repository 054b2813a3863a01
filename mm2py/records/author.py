"""Who changes the settings of a flow, or requests something of it, and why. Pure.

Connect keeps nothing of the kind. mm2py's own records have these fields in addition to those that older versions read;
a missing field is read as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mm2py.errors import ConfigError
from mm2py.secret import HIDDEN, setting_within

REASON_MOST: Final = 200
"""How many characters a reason may have."""
NAME_MOST: Final = 64
"""How many characters of a user's name and of a host's name are kept."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who asks, and why. Empty fields are unknown."""

    user: str = ""
    """The login name on ``host``; over REST the name in the users' file, or anonymous."""
    host: str = ""
    """The machine on which the command ran, or the worker that got the REST request."""
    reason: str = ""
    """The reason that the operator gave."""

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a record; empty ones are left out."""
        found = {"user": self.user[:NAME_MOST], "host": self.host[:NAME_MOST], "reason": self.reason[:REASON_MOST]}
        return {name: text for name, text in found.items() if text}

    def by_command(self, command: str) -> str:
        """Return who changes something with a command or a file, in words."""
        return f"{self.user or 'an unknown user'} on {self.host or 'an unknown host'} ({command})"

    @property
    def by_rest(self) -> str:
        """Who asks over REST, in words."""
        return f"{self.user or 'an unknown user'} over REST on worker {self.host or 'of an unknown host'}"


UNKNOWN: Final = Author()


def author_of(fields: Mapping[str, Any]) -> Author:
    """Return the author that a record names; a reason that may hold a secret is hidden."""
    reason = plain(fields.get("reason"), REASON_MOST)
    return Author(
        plain(fields.get("user"), NAME_MOST),
        plain(fields.get("host"), NAME_MOST),
        HIDDEN if setting_within(reason) else reason,
    )


def plain(text: object, most: int) -> str:
    """Return a text of a record, cut, without characters that could control a terminal; empty if it is no text."""
    return "".join(char for char in text[:most] if char.isprintable()) if isinstance(text, str) else ""


def with_reason(by: str, reason: str) -> str:
    """Return who asks, and why, in words."""
    return f"{by}: {reason}" if reason else by


def checked_reason(text: str) -> str:
    """Return a reason that may be stored and shown, without blanks around it; empty: there is none.

    Raises:
        ConfigError: it may not be stored. The error does not repeat the reason, which may hold a secret.
    """
    reason = text.strip()
    if len(reason) > REASON_MOST:
        raise ConfigError(
            f"The reason has {len(reason):,} characters.",
            remedy=f"Say it in {REASON_MOST}, and where to read more.",
        )
    if not reason.isprintable():
        raise ConfigError("The reason holds a control character, as a line break.", remedy="Say it in one line.")
    if setting_within(reason):
        raise ConfigError(
            "The reason looks as if it held a credential or an address, as password=... would.",
            remedy="Say it without: all users who may read the flow's settings can read it.",
        )
    return reason
