"""Who changes the settings of a flow, or asks something of it, and why. Pure.

Connect keeps nothing of the kind. These are fields of mm2py's own records, beside those that older versions read; what
is not there is empty.
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
"""How many characters of a user's name and of a host's are kept."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who asks, and why. Empty: it is not known."""

    user: str = ""
    """The login name on that host; over REST the name in the users' file, or anonymous."""
    host: str = ""
    """The machine of the command, or of the worker that was asked over REST."""
    reason: str = ""
    """What the operator has said about it."""

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a record; those that are empty are left out."""
        found = {"user": self.user[:NAME_MOST], "host": self.host[:NAME_MOST], "reason": self.reason[:REASON_MOST]}
        return {name: text for name, text in found.items() if text}

    def by_command(self, command: str) -> str:
        """Return who changes something by a command, or by a file, as people read it."""
        return f"{self.user or 'an unknown user'} on {self.host or 'an unknown host'} ({command})"

    @property
    def by_rest(self) -> str:
        """Who asks over REST, as people read it."""
        return f"{self.user or 'an unknown user'} over REST on worker {self.host or 'of an unknown host'}"


UNKNOWN: Final = Author()


def author_of(fields: Mapping[str, Any]) -> Author:
    """Return who has written a record, as far as it says so in a form that may be shown."""
    reason = plain(fields.get("reason"), REASON_MOST)
    return Author(
        plain(fields.get("user"), NAME_MOST),
        plain(fields.get("host"), NAME_MOST),
        HIDDEN if setting_within(reason) else reason,
    )


def plain(text: object, most: int) -> str:
    """Return text of a record, cut, without characters that could control a terminal; empty if it is no text."""
    return "".join(char for char in text[:most] if char.isprintable()) if isinstance(text, str) else ""


def with_reason(by: str, reason: str) -> str:
    """Return who asks, and why, as people read it."""
    return f"{by}: {reason}" if reason else by


def checked_reason(text: str) -> str:
    """Return a reason that may be stored and shown, without blanks around it; empty: there is none.

    Raises:
        ConfigError: it may not. It is not repeated: it may hold a secret.
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
