"""``sasl.jaas.config``: one login module with its options, as Java writes it. Pure; no class is ever loaded.

Only the modules of Kafka's own mechanisms are known; every other one is refused. The message names a refused module
only if it is of a known package. No message repeats anything that may be part of a value: a quote in the wrong place
makes the rest of a password a name.

Counterpart: JaasConfig of Apache Kafka's clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mm2py.config.security.keys import SECURITY
from mm2py.secret import Secret

_SECURITY: Final = "org.apache.kafka.common.security"
PLAIN: Final = f"{_SECURITY}.plain.PlainLoginModule"
SCRAM: Final = f"{_SECURITY}.scram.ScramLoginModule"
OAUTHBEARER: Final = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
KERBEROS: Final = "com.sun.security.auth.module.Krb5LoginModule"
MODULES: Final = (PLAIN, SCRAM, OAUTHBEARER, KERBEROS)
FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_PASSWORD: Final = frozenset({"username", "password", "tokenauth"})
KERBEROS_FLAGS: Final = frozenset(
    {
        *("useKeyTab", "useTicketCache", "renewTGT", "storeKey", "doNotPrompt", "isInitiator", "refreshKrb5Config"),
        *("debug", "useFirstPass", "tryFirstPass", "storePass", "clearPass"),
    }
)
KERBEROS_TEXTS: Final = frozenset({"keyTab", "principal", "ticketCache", "serviceName"})
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    PLAIN: _PASSWORD,
    SCRAM: _PASSWORD,
    OAUTHBEARER: frozenset({"clientId", "clientSecret", "scope", "extension_auth", *SECURITY}),
    KERBEROS: KERBEROS_FLAGS | KERBEROS_TEXTS,
}
"""The options that messages may name, by module."""
_OPTION_FAMILIES: Final = ("user_", "extension_", "unsecuredLogin")
_PACKAGES: Final = (
    "org.apache.kafka.",
    "com.sun.security.",
    "com.ibm.security.",
    "com.google.cloud.hosted.kafka.",
    "io.confluent.",
    "io.strimzi.",
    "software.amazon.msk.",
)
"""Packages whose login modules messages may name."""
TEXT_MAX_CHARS: Final = 256 * 1024

_SKIPPED: Final = re.compile(r"(?:[\x00-\x20]+|//[^\r\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_.$\-\u00a0-\U0010ffff]*")
"""Java takes a word that begins like a number for a number, which is no value."""
_CLASS: Final = re.compile(r"(?:[A-Za-z_$][A-Za-z0-9_$]{0,60}\.){1,12}[A-Za-z_$][A-Za-z0-9_$]{0,60}")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


class BadJaas(ValueError):
    """The text is no login module that mm2py knows. The message completes "sasl.jaas.config ..."."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    name: str
    options: Mapping[str, Secret] = field(repr=False)

    def shown(self, option: str) -> str:
        """Return how messages name an option: by its name if such a module has it, else by its place."""
        return _shown(self.name, option, list(self.options).index(option) + 1)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """``word``, ``quoted``, ``=``, ``;``."""
    text: Secret


def parse_jaas(text: Secret) -> LoginModule:
    """Return the one login module of a text.

    Raises:
        BadJaas: there is no module, more than one, an unknown one, or the text has a syntax error.
    """
    tokens = _tokens(text.reveal())
    first = next(tokens, None)
    if first is None:
        raise BadJaas("names no login module")
    name = first.text.reveal()
    if first.kind != "word" or name not in MODULES:
        is_shown = first.kind == "word" and name.startswith(_PACKAGES) and _CLASS.fullmatch(name)
        raise BadJaas(
            f"asks for a login module that mm2py does not have ({name if is_shown else 'what begins it'}); it has"
            f" {', '.join(module.rpartition('.')[2] for module in MODULES)}, written with their packages"
        )
    flag = next(tokens, None)
    if flag is None or flag.kind != "word" or flag.text.reveal().lower() not in FLAGS:
        raise BadJaas("lacks the word required behind its login module")
    options = _options(name, tokens)
    if next(tokens, None) is not None:
        raise BadJaas("has something behind its first semicolon; one login module is all that a client has")
    return LoginModule(name, options)


def _shown(module: str, option: str, number: int) -> str:
    if option in _OPTIONS[module]:
        return option
    family = next((family for family in _OPTION_FAMILIES if option.startswith(family)), None)
    return f"number {number}" if family is None else f"{family}... (number {number})"


def _options(module: str, tokens: Iterator[_Token]) -> dict[str, Secret]:
    options: dict[str, Secret] = {}
    for number, token in enumerate(tokens, 1):
        if token.kind == ";":
            return options
        if token.kind not in ("word", "quoted"):
            raise BadJaas(f"has a stray {token.kind} before its option {number}")
        key = _shown(module, token.text.reveal(), number)
        equals, value = next(tokens, None), next(tokens, None)
        if equals is None or equals.kind != "=" or value is None or value.kind not in ("word", "quoted"):
            raise BadJaas(f'has no value for its option {key}; write name="value", with a semicolon behind the last')
        if token.text.reveal() in options:
            raise BadJaas(f"has its option {key} twice")
        options[token.text.reveal()] = value.text
    raise BadJaas("does not end with a semicolon")


def _tokens(text: str) -> Iterator[_Token]:
    if len(text) > TEXT_MAX_CHARS:
        raise BadJaas(f"is longer than {TEXT_MAX_CHARS:,} characters")
    at = 0
    while at < len(text):
        if skipped := _SKIPPED.match(text, at):
            at = skipped.end()
        elif text[at] in "=;":
            yield _Token(text[at], Secret(text[at]))
            at += 1
        elif text[at] in "\"'":
            value, at = _quoted(text, at)
            yield _Token("quoted", value)
        elif word := _WORD.match(text, at):
            yield _Token("word", Secret(word[0]))
            at = word.end()
        else:
            raise BadJaas(f"has a character at position {at + 1} that needs quotes around it")


def _quoted(text: str, start: int) -> tuple[Secret, int]:
    """Read a string; escapes are those of Java's StreamTokenizer, octal numbers included."""
    quote, at, out = text[start], start + 1, []
    while at < len(text) and text[at] not in (quote, "\n", "\r"):
        if text[at] != "\\" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif octal := re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?").match(text, at + 1):
            out.append(chr(int(octal[0], 8)))
            at = octal.end()
        else:
            out.append(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    if at >= len(text) or text[at] != quote:
        raise BadJaas(f"has a quote at position {start + 1} that is not closed on its line")
    return Secret("".join(out)), at + 1
