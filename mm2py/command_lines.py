"""The file in command lines that texts advise: ``mm2py gaps FILE accept``. Pure.

A text is made by one worker, and read elsewhere: in its log, in the status, over REST. So it says ``FILE``, and what
shows it to a reader whose file is known puts that in. Where only another file will do, it says whose: the path of that
one is not known here.
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
    """Return a text that names the file of another group in commands which only the group that runs the flow may give.

    These store settings, or start a worker. The others only read, or ask the workers for something.

    Args:
        other: the group that runs the flow; empty: it is the reader's own.
    """
    if not other:
        return text
    return _FOR_OWNER.sub(lambda found: f"{found[1]} {OTHER_FILE} (the file of group {other})", text)
