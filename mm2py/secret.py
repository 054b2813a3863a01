"""Secrets: a value that cannot be printed, and which keys and values of a settings file may be shown.

Code that needs the text of a ``Secret`` calls ``reveal``, so that a search for that word finds every place that can
show a secret. MirrorMaker 2 hides only what its definitions call a password. Here a key is also judged by its name,
because custom plug-ins have secrets that no definition knows. A key that looks like a piece of a secret is not shown:
a lost backslash makes the rest of a password a "key". A value that looks as if it held another setting is not shown
either (``setting_within``).

Counterpart: ``Password`` of Apache Kafka's configuration.
"""

from __future__ import annotations

import hmac
import re
from typing import Any, Final, NoReturn, Self

HIDDEN: Final = "[hidden]"


class Secret:
    """Text that str, repr, format, tracebacks of data and JSON show as ``[hidden]``, and that is never pickled."""

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text; do not keep it, and never put it into a message."""
        return self.__text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self.__text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        ours, theirs = (text.encode("utf-8", "surrogatepass") for text in (self.__text, other.__text))
        return hmac.compare_digest(ours, theirs)

    def __hash__(self) -> int:
        return hash((Secret, self.__text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a secret is not written anywhere")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")


def without(text: str, secrets: tuple[Secret, ...]) -> str:
    """Return text from outside with every secret in it hidden: a broker may echo a password."""
    for secret in sorted((secret.reveal() for secret in secrets if secret), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


_SSL = (
    "cipher.suites enabled.protocols endpoint.identification.algorithm engine.factory.class key.password"
    " keymanager.algorithm keystore.certificate.chain keystore.key keystore.location keystore.password keystore.type"
    " protocol provider secure.random.implementation trustmanager.algorithm truststore.certificates"
    " truststore.location truststore.password truststore.type"
)
_SASL = (
    "client.callback.handler.class jaas.config kerberos.kinit.cmd kerberos.min.time.before.relogin"
    " kerberos.service.name kerberos.ticket.renew.jitter kerberos.ticket.renew.window.factor"
    " login.callback.handler.class login.class login.connect.timeout.ms login.read.timeout.ms"
    " login.refresh.buffer.seconds login.refresh.min.period.seconds login.refresh.window.factor"
    " login.refresh.window.jitter login.retry.backoff.max.ms login.retry.backoff.ms mechanism"
    " oauthbearer.assertion.algorithm oauthbearer.assertion.claim.aud oauthbearer.assertion.claim.exp.seconds"
    " oauthbearer.assertion.claim.iss oauthbearer.assertion.claim.jti.include"
    " oauthbearer.assertion.claim.nbf.seconds oauthbearer.assertion.claim.sub oauthbearer.assertion.file"
    " oauthbearer.assertion.private.key.file oauthbearer.assertion.private.key.passphrase"
    " oauthbearer.assertion.template.file oauthbearer.client.credentials.client.id"
    " oauthbearer.client.credentials.client.secret oauthbearer.clock.skew.seconds oauthbearer.expected.audience"
    " oauthbearer.expected.issuer oauthbearer.header.urlencode oauthbearer.jwks.endpoint.refresh.ms"
    " oauthbearer.jwks.endpoint.retry.backoff.max.ms oauthbearer.jwks.endpoint.retry.backoff.ms"
    " oauthbearer.jwks.endpoint.url oauthbearer.jwt.retriever.class oauthbearer.jwt.validator.class"
    " oauthbearer.scope oauthbearer.scope.claim.name oauthbearer.sub.claim.name oauthbearer.token.endpoint.url"
)
CLIENT_NAMES = frozenset(
    ["bootstrap.servers", "security.protocol"]
    + [f"ssl.{name}" for name in _SSL.split()]
    + [f"sasl.{name}" for name in _SASL.split()]
)
"""The only client settings that a client inherits from its cluster, and a cluster from the top of the file."""

KEY_SHOWN_MAX = 120
VALUE_SHOWN_MAX = 80
NAME_SHOWN_MAX = 249
"""As long as the name of a topic may be."""

_SECRET = re.compile(r"password|passwd|passphrase|secret|token|jaas|credential|certificate|keystore|truststore", re.I)
_COMMAND = re.compile(r"^dr\.hook\.")
"""A command line may hold anything."""
_SECRET_PART = re.compile(r"(?:^|[._-])(?:key|keys|auth|authorization|cert|certs|pwd|pin)(?:$|[._-])", re.I)
_ADDRESS = re.compile(
    r"(?:^|[._-])(?:address|addresses|bootstrap|connect|controllers|directory|endpoint|file|files|host|hosts|listeners?"
    r"|location|path|paths|port|ports|servers?|uri|url)(?:$|[._-])",
    re.I,
)
_OF_ZOOKEEPER = ("zookeeper.connect", "zookeeper.auth.digest")
_NAMES_OF_CONNECTIONS = tuple(sorted({*CLIENT_NAMES, *_OF_ZOOKEEPER}, key=len, reverse=True))
_NAME_AND_MORE = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)(?P<between>\s*[=:]\s?|\s+(?=[^\s,]))")
_WEB_ADDRESS = re.compile(r"https?://[^\s,]+")
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/]{32}")
_NOT_SHOWN = "[a key that is not shown, because it may be part of a secret]"
_MADE_LIKE_A_KEY = re.compile(r"[\w.$> -]+")
"""Names of Kafka's settings, parameters of its plug-ins, arrows, aliases in any script."""


def may_hold_secret(key: str) -> bool:
    """Return whether the value of this key must never be shown; names of converters and endpoints may be shown."""
    name = re.sub(r"(?:^|\.)(?:key|value)\.(?:converter|serializer|deserializer)(?:\.|$)", ".", key)
    return bool(_SECRET.search(name) or _SECRET_PART.search(name) or _COMMAND.search(name))


def may_be_address(key: str) -> bool:
    """Return whether the name of this key says that its value is an address or a path."""
    return _ADDRESS.search(key) is not None


def setting_within(value: str) -> str:
    """Return what looks like a setting of a connection inside the value of another one; empty if nothing does.

    The story: ``topics = orders, \\`` was the first line of three; the others were taken out. Now the line of a
    password belongs to the topics, and even ``#`` before it does not help. A topic called ``password-resets`` is no
    setting, nor is ``x(?=.*token)``: there has to be a name with a value after it. A blank sets a value, too, as in
    ``A.password hunter2``; without a dot in the name these are two words.
    """
    for found in _NAME_AND_MORE.finditer(_WEB_ADDRESS.sub("", value)):
        name, between = found["name"][-KEY_SHOWN_MAX:], found["between"]
        known = next((known for known in _NAMES_OF_CONNECTIONS if name.endswith(known)), "")
        if known:
            return known
        is_set = "=" in between or (":" in between and between[-1].isspace())  # a group may be called token:refresh
        if is_set and (_SECRET.search(name) or ("." in name and (may_hold_secret(name) or may_be_address(name)))):
            return "a credential or an address"
        if between.isspace() and "." in name and may_hold_secret(name):
            return "a credential or an address"
    return ""


def may_show_unknown_key(key: str, value: str) -> bool:
    """Return whether a key that mm2py does not know may be shown.

    A key without a value may be a piece of the value before it: a blank after the backslash that should continue a
    line makes the rest of a password a key. So may one that is not made like a key.
    """
    return bool(value) and _MADE_LIKE_A_KEY.fullmatch(key) is not None and not _KEY_MATERIAL.search(key)


def shown_unknown_key(key: str, value: str) -> str:
    """Return a key that mm2py does not know as one line of a log may have it."""
    return shown_key(key) if may_show_unknown_key(key, value) else _NOT_SHOWN


def shown_key(key: str) -> str:
    """Return a key as one line of a log may have it. For an unknown key see ``shown_unknown_key``."""
    if _KEY_MATERIAL.search(key):
        return _NOT_SHOWN
    text = printable(key)
    return text if len(text) <= KEY_SHOWN_MAX else f"{text[:KEY_SHOWN_MAX]}…"


def shown_name(text: str) -> str:
    """Return a name out of a request, such as that of a topic, in a form that an answer or a log may repeat.

    The story: a script puts a token where the name of a connector belongs. The answer that there is no such connector,
    and the record of the request, would hold the token.
    """
    if _KEY_MATERIAL.search(text):
        return "[a name that is not shown, because it may be a secret]"
    shown = printable(text[: NAME_SHOWN_MAX + 1])
    return shown if len(text) <= NAME_SHOWN_MAX else f"{shown[:NAME_SHOWN_MAX]}…"


def printable(text: str) -> str:
    """Return text that may come from other people's clusters so that it stays in its line and steers no terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def is_hidden(key: str, value: str) -> bool:
    """Return whether a value must never be shown: by its key, or because it may contain another setting."""
    return may_hold_secret(key) or bool(setting_within(value))


def shown_value(key: str, value: str, *, most: int | None = VALUE_SHOWN_MAX) -> str:
    """Return the value as one line of a log may have it, in quotes; hidden if it may hold a secret.

    Args:
        most: what follows this many characters is cut off; None: nothing is.
    """
    if is_hidden(key, value):
        return HIDDEN
    text = value if most is None or len(value) <= most else f"{value[:most]}…"
    return ascii(text) if not text.isprintable() else repr(text)
