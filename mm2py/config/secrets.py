"""What of a settings file may be shown: names that look like names, values of keys that hold no secret.

MirrorMaker 2 hides only what its definitions call a password. Here a key is also judged by its name, because custom
plug-ins have secrets that no definition knows. A key is not shown if it looks like a piece of a secret: a blank behind
the backslash that should continue a line, or a lost backslash, makes the rest of a password or of a PEM block a "key".
"""

from __future__ import annotations

import re

from mm2py import secret

HIDDEN = secret.HIDDEN
KEY_SHOWN_MAX = 120
VALUE_SHOWN_MAX = 80

_SECRET = re.compile(r"password|passwd|passphrase|secret|token|jaas|credential|certificate|keystore|truststore", re.I)
_SECRET_PART = re.compile(r"(?:^|[._-])(?:key|keys|auth|authorization|cert|certs|pwd|pin)(?:$|[._-])", re.I)
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/]{32}")
_MADE_LIKE_A_KEY = re.compile(r"[\w.$> -]+")
"""Names of Kafka's settings, parameters of its plug-ins, arrows, aliases in any script."""


def may_hold_secret(key: str) -> bool:
    """True if the value of this key is never to be shown; names of converters and endpoints are let through."""
    name = re.sub(r"(?:^|\.)(?:key|value)\.(?:converter|serializer|deserializer)(?:\.|$)", ".", key)
    return bool(_SECRET.search(name) or _SECRET_PART.search(name))


def may_show_unknown_key(key: str, stray: str = "") -> bool:
    """Whether a key of which nothing is known may be shown; see ``shown_unknown_key``."""
    return not stray and _MADE_LIKE_A_KEY.fullmatch(key) is not None and not _KEY_MATERIAL.search(key)


def shown_unknown_key(key: str, stray: str = "") -> str:
    """Return a key of which nothing is known as it may stand in one line of a log.

    Args:
        stray: why it may be a piece of the value before it, in half a sentence; empty if its line does not look so.
    """
    if may_show_unknown_key(key, stray):
        return shown_key(key)
    return f"[a key that is not shown, because it may be part of a secret{stray and f': {stray}'}]"


def shown_key(key: str) -> str:
    """Return a key as it may stand in one line of a log. Of one that is not known see ``shown_unknown_key``."""
    if _KEY_MATERIAL.search(key):
        return "[a key that is not shown, because it may be part of a secret]"
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in key)
    return text if len(text) <= KEY_SHOWN_MAX else f"{text[:KEY_SHOWN_MAX]}…"


def shown_value(key: str, value: str) -> str:
    """Return the value as it may stand in one line of a log, in quotes; hidden if the key may hold a secret."""
    if may_hold_secret(key):
        return HIDDEN
    text = value if len(value) <= VALUE_SHOWN_MAX else f"{value[:VALUE_SHOWN_MAX]}…"
    return ascii(text) if not text.isprintable() else repr(text)
