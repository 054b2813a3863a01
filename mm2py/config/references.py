r"""References to config providers in the text of a setting: ``${file:/run/secrets/kafka:password}``. Pure.

A text that is no whole reference stays as it is, and so does a reference to a provider that the file does not name. The
answer of a provider is not searched for references. Unlike in Kafka, a key that a provider does not have is an error:
as text, the reference would be sent to the broker in place of the password.

Counterpart: ConfigTransformer of Apache Kafka's clients: ``${provider:path:key}`` or ``${provider:key}``, several in
one text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.secret import Secret, printable

_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

Provider = Callable[[str, str], str]
"""Returns the value of a key at a path, which is empty if the reference has none. Raises: Unresolved."""


class Unresolved(Exception):
    """A provider has no value. The message says which and why, and holds nothing of what the provider has read."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A text with the values of its references."""

    text: Secret
    values: tuple[Secret, ...]
    """What the providers answered."""
    has_strangers: bool
    """Some references are to providers that the file does not name, and stay as they are."""


def holds_reference(text: str) -> bool:
    """Whether there is a reference in a text, to any provider."""
    return _REFERENCE.search(text) is not None


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of the providers to which a text refers, each once."""
    return tuple(dict.fromkeys(found[1] for found in _REFERENCE.finditer(text)))


def resolve(text: str, providers: Mapping[str, Provider]) -> Resolved:
    """Return a text with the values of its references.

    Args:
        providers: by their names in ``config.providers``.
    Raises:
        Unresolved: a provider has no value for one of them.
    """
    values: list[Secret] = []
    has_strangers = False

    def value_of(reference: re.Match[str]) -> str:
        nonlocal has_strangers
        name, path, key = reference.groups()
        if name not in providers:
            has_strangers = True
            return reference[0]
        try:
            value = providers[name](path or "", key)
        except Unresolved as error:
            raise Unresolved(f"provider {printable(name)}: {error}") from None
        values.append(Secret(value))
        return value

    return Resolved(Secret(_REFERENCE.sub(value_of, text)), tuple(values), has_strangers)
