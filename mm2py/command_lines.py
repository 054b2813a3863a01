"""Puts the reader's settings file into commands that texts advise, such as ``mm2py gaps FILE accept``. Pure.

A worker makes a text that is read elsewhere: in its log, in the status, over REST. So the text says ``FILE``, and the
code that shows it puts the reader's file in, if this file is known. If a command needs the file of another group, the
text names that group, because the path of its file is not known here.
"""

from __future__ import annotations

import re
from typing import Final

FILE: Final = "FILE"
OTHER_FILE: Final = "OTHER.properties"
_FOR_FILE: Final = re.compile(r"(mm2py(?: [a-z-]+){0,2}) FILE\b")
_FOR_OWNER: Final = re.compile(r"(mm2py(?: apply)?) FILE\b")


def with_file(text: str, file: str) -> str:
    """Return a text with the reader's file in its commands. ``file``: as a command line takes it."""
    return _FOR_FILE.sub(lambda found: f"{found[1]} {file}", text)


def for_group(text: str, other: str) -> str:
    """Return a text that names another group's file in the commands that only the group which runs the flow may use.

    These commands store settings, or start a worker. The other commands only read, or ask the workers for something.

    Args:
        other: the group that runs the flow; empty: it is the reader's own.
    """
    if not other:
        return text
    return _FOR_OWNER.sub(lambda found: f"{found[1]} {OTHER_FILE} (the file of group {other})", text)
