"""The user and the machine of this process, so that a change names the operator who made it."""

from __future__ import annotations

import getpass
import os
import socket

from mm2py.records.author import NAME_MOST, Author, plain


def login_name() -> str:
    """Return the login name of the user. A container may have a user without a name: then it is the number."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # which one depends on the version of Python
        name = ""
    return plain(name, NAME_MOST) or str(os.getuid())


def host_name() -> str:
    """Return the name of this machine."""
    return plain(socket.gethostname(), NAME_MOST)


def author_here(reason: str = "") -> Author:
    """Return the user of this process, as the author of a change."""
    return Author(login_name(), host_name(), reason)
