"""Bodies of requests: strict JSON, and no deeper than a route can need. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

DEPTH_MOST: Final = 16
"""The deepest body of ours has four levels."""


class BadBody(ValueError):
    """A body is refused. The message completes "The body" and repeats nothing of the body."""


def parse_json(body: bytes) -> Any:
    """Return the value of a body.

    Raises:
        BadBody: it is not JSON in UTF-8; or it has NaN, a name twice, half a character, or too many levels.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise BadBody("is not UTF-8.") from None
    if text.startswith("\ufeff"):
        raise BadBody("begins with a byte order mark.")
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except RecursionError:
        raise BadBody(f"has more than {DEPTH_MOST} levels.") from None
    except json.JSONDecodeError as error:
        raise BadBody(f"is not JSON, from character {error.pos + 1} on.") from None
    except BadBody:
        raise
    except ValueError:  # a number of thousands of digits
        raise BadBody("has a number that is too long.") from None
    _check(found)
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadBody("has a name twice in one object.")
    return found


def _no_number(_: str) -> NoReturn:
    raise BadBody("has NaN or Infinity, which JSON does not have.")


def _check(found: Any) -> None:
    level = [found]
    for _ in range(DEPTH_MOST + 1):
        below: list[Any] = []
        for value in level:
            match value:
                case dict():
                    below += [*value.keys(), *value.values()]
                case list():
                    below += value
                case str() if not _is_whole(value):
                    raise BadBody("has half a character (a surrogate without its other half).")
                case float() if value in (float("inf"), float("-inf")):
                    raise BadBody("has a number that is too large.")
        if not below:
            return
        level = below
    raise BadBody(f"has more than {DEPTH_MOST} levels.")


def _is_whole(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
