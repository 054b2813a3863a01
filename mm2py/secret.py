"""A value that cannot be printed: passwords, keys, tokens, from the moment a setting is taken for one (S05, S06).

Answers to ``Password`` of Apache Kafka's configuration. Whoever needs the text asks for it with ``reveal``, so that
every place that can show a secret is found by searching for that word.
"""

from __future__ import annotations

import hmac
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
    """Return what somebody else wrote with every secret in it hidden: an evil broker may echo a password."""
    for secret in sorted((secret.reveal() for secret in secrets if secret), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
