"""Makes a chain of the settings ``transforms`` and ``predicates`` of a connector. It reads the modules of users.

A transform that mm2py does not have refuses its flow, with the reason: ignoring it would change the copy. A setting of
a transform that is not known does the same, as a slip in ``predicate`` would let a ``Filter`` drop every record.

Counterpart: ``ConnectorConfig.transformations`` of Apache Kafka's Connect.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from mm2py.config.kinds import BadValue, boolean, distinct_strings, integer, java_trim, strings
from mm2py.topics.filters import NotTranslatable, compile_java
from mm2py.transforms.chain import (
    Change,
    DropHeaders,
    DropRecord,
    InsertHeader,
    TransformChain,
    TransformStep,
    UserFunction,
)
from mm2py.transforms.predicates import HasHeaderKey, Predicate, RecordIsTombstone, TopicNameMatches

T = TypeVar("T")

_PACKAGE: Final = "org.apache.kafka.connect.transforms."
_PREDICATES_PACKAGE: Final = f"{_PACKAGE}predicates."
PYTHON: Final = "python"
TIMEOUT_DEFAULT_MS: Final = 5_000
TIMEOUT_MAX_MS: Final = 60_000
MEMORY_DEFAULT_BYTES: Final = 512 << 20
MEMORY_MIN_BYTES: Final = 64 << 20

_STRUCTURED: Final = (
    "it works on fields of keys and values, and records are copied as bytes: MirrorMaker 2 with its ByteArrayConverter"
    " fails on it, too"
)
_FIELD_CLASSES: Final = (
    *("Cast", "HeaderFrom", "ExtractField", "Flatten", "HoistField", "InsertField", "MaskField", "ReplaceField"),
    *("SetSchemaMetadata", "TimestampConverter", "ValueToKey"),
)
_REFUSED: Final = {
    **dict.fromkeys(_FIELD_CLASSES, _STRUCTURED),
    "RegexRouter": "it works alone only, as a rule of topics.rename",
    "TimestampRouter": (
        "the topic would depend on the time of each record: one partition would be copied to many topics, and no offset"
        " could be translated"
    ),
}
_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")


class TransformsUnusable(ValueError):
    """The settings make no chain; ``problems`` has the name of each setting that is wrong, and a clause."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name} {why}" for name, why in problems))
        self.problems = problems


class _Slip(Exception):
    """A setting is wrong: its name within the connector's settings, and a clause."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.problem = name, why


def read_chain(settings: Mapping[str, str]) -> TransformChain | None:
    """Return the transforms of a flow; None: it has none.

    Args:
        settings: those of its source connector.
    Raises:
        TransformsUnusable: at least one setting is wrong, or asks for what mm2py does not do.
    """
    problems: list[tuple[str, str]] = []
    predicates: dict[str, Predicate] = {}
    steps: list[TransformStep] = []
    for alias in _aliases(settings, "predicates", problems):
        try:
            predicates[alias] = _predicate(_AliasSettings(settings, f"predicates.{alias}."))
        except _Slip as slip:
            problems.append(slip.problem)
    for alias in _aliases(settings, "transforms", problems):
        try:
            steps.append(_step(alias, _AliasSettings(settings, f"transforms.{alias}."), predicates))
        except _Slip as slip:
            problems.append(slip.problem)
    if problems:
        raise TransformsUnusable(problems)
    return TransformChain(tuple(steps)) if steps else None


def _aliases(settings: Mapping[str, str], name: str, problems: list[tuple[str, str]]) -> tuple[str, ...]:
    try:
        return distinct_strings(settings.get(name, ""))
    except BadValue as bad:
        problems.append((name, f"is {bad}"))
        return ()


class _AliasSettings:
    """The settings of one transform or predicate; ``end`` finds those that nothing has asked for."""

    def __init__(self, settings: Mapping[str, str], prefix: str) -> None:
        self.prefix = prefix
        self._left = {name[len(prefix) :]: value for name, value in settings.items() if name.startswith(prefix)}

    def text(self, name: str) -> str | None:
        value = self._left.pop(name, None)
        return None if value is None else java_trim(value)

    def needed(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.slip(name, "is missing")
        return value

    def kind(self, name: str, kind: Callable[[str], T], default: T) -> T:
        value = self.text(name)
        if value is None:
            return default
        try:
            return kind(value)
        except BadValue as bad:
            raise self.slip(name, f"is {bad}") from bad

    def slip(self, name: str, why: str) -> _Slip:
        return _Slip(f"{self.prefix}{name}", why)

    def end(self) -> None:
        for name in self._left:
            raise self.slip(name, "is not known")


def _class_name(part: _AliasSettings, package: str) -> str:
    """Return the name of a class of Connect without its package, or any other type as it is written."""
    return part.needed("type").removeprefix(package)


def _predicate(part: _AliasSettings) -> Predicate:
    found: Predicate
    match _class_name(part, _PREDICATES_PACKAGE):
        case "TopicNameMatches":
            pattern = part.needed("pattern")
            try:
                compile_java(pattern)
            except NotTranslatable as error:
                raise part.slip("pattern", f"cannot be used: {error}") from error
            if not pattern:
                raise part.slip("pattern", "is empty")
            found = TopicNameMatches(pattern)
        case "HasHeaderKey":
            name = part.needed("name")
            if not name:
                raise part.slip("name", "is empty")
            found = HasHeaderKey(name)
        case "RecordIsTombstone":
            found = RecordIsTombstone()
        case _:
            raise part.slip("type", "is none of TopicNameMatches, HasHeaderKey, RecordIsTombstone")
    part.end()
    return found


def _step(alias: str, part: _AliasSettings, predicates: Mapping[str, Predicate]) -> TransformStep:
    name = part.text("predicate")
    if name is None and part.text("negate") is not None:
        raise part.slip("negate", "is set, and there is no predicate")
    negate = part.kind("negate", boolean, False)
    if name is not None and name not in predicates:
        raise part.slip("predicate", f"names {name!r}, which predicates does not list, or which is refused")
    change = _change(part, has_predicate=name is not None)
    part.end()
    return TransformStep(alias, change, None if name is None else predicates[name], negate)


def _change(part: _AliasSettings, *, has_predicate: bool) -> Change:
    name = _class_name(part, _PACKAGE)
    match name:
        case "InsertHeader":
            literal = part.needed("value.literal")
            return InsertHeader(part.needed("header"), None if literal == "null" else literal.encode())
        case "DropHeaders":
            part_headers = part.needed("headers")
            headers = _listed(part, "headers", part_headers)
            return DropHeaders(frozenset(headers))
        case "Filter":
            if not has_predicate:
                raise part.slip("predicate", "is missing: this Filter would drop every record")
            return DropRecord()
        case "python":
            return _user_function(part)
    reason = _REFUSED.get(name.partition("$")[0])
    if reason is not None:
        raise part.slip("type", f"= {name} is refused: {reason}")
    raise part.slip(
        "type",
        "is none of InsertHeader, DropHeaders, Filter, python (mm2py runs no Java classes; write it as a Python"
        " function, see docs/transforms.md)",
    )


def _listed(part: _AliasSettings, name: str, text: str) -> tuple[str, ...]:
    try:
        found = strings(text)
    except BadValue as bad:
        raise part.slip(name, f"is {bad}") from bad
    if not found:
        raise part.slip(name, "is empty")
    return found


def _user_function(part: _AliasSettings) -> UserFunction:
    """Read the module of a user."""
    path, function = Path(part.needed("module")), part.needed("function")
    timeout_ms = part.kind("timeout.ms", integer(1, TIMEOUT_MAX_MS), TIMEOUT_DEFAULT_MS)
    memory = part.kind("memory.max.bytes", integer(MEMORY_MIN_BYTES, 1 << 40), MEMORY_DEFAULT_BYTES)
    if not path.is_absolute():
        raise part.slip("module", "is no absolute path")
    if not _IDENTIFIER.fullmatch(function):
        raise part.slip("function", "is no name of a function")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise part.slip("module", f"cannot be read: {error.strerror}") from error
    return UserFunction(str(path), function, hashlib.sha256(source).hexdigest(), timeout_ms / 1000, memory)
