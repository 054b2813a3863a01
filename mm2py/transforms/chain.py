"""A chain of transforms: what each does to a record, in order. Pure, but for the function of a user.

A chain must be deterministic. After a crash the source is read again, and the copy is continued where as many records
as the target has come out of the chain. So a chain has a ``digest``, which stands in each stored position: another
chain would count other records.

Counterpart: TransformationChain and PredicatedTransformation of Apache Kafka's Connect; InsertHeader, DropHeaders and
Filter of its transforms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Final, Protocol

from mm2py.errors import Mm2Error
from mm2py.records.batch import Record
from mm2py.transforms.predicates import Predicate, TopicNameMatches

RULES_VERSION: Final = 1
"""Grows when a transform does something else to the same record: positions of both must not be mixed."""


class TransformFailed(Mm2Error):
    """A transform did not say what becomes of a record. The record stops its partition; nothing is left out."""

    def __init__(self, what: str, *, offset: int) -> None:
        super().__init__(what, remedy="Correct the transform, or the producer of the record.")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """Adds a header behind those that a record has, also if it has one of this name already."""

    header: str
    value: bytes | None

    def change(self, record: Record) -> Record | None:
        return record._replace(headers=(*record.headers, (self.header, self.value)))


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """Removes all headers of these names."""

    headers: frozenset[str]

    def change(self, record: Record) -> Record | None:
        kept = tuple(header for header in record.headers if header[0] not in self.headers)
        return record if len(kept) == len(record.headers) else record._replace(headers=kept)


@dataclass(frozen=True, slots=True)
class DropRecord:
    """Leaves records out: Connect's ``Filter``."""

    def change(self, record: Record) -> Record | None:
        return None


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A Python function of a user, in a module of this worker's disk."""

    module: str
    function: str
    source_sha256: str
    """Of the module's source. Modules that it imports are not in it."""
    timeout_s: float
    """How long it may take for one batch of records."""
    memory_max_bytes: int


class RunsFunctions(Protocol):
    """Calls the functions of users."""

    def call(
        self, function: UserFunction, topic: str, partition: int, records: Sequence[Record]
    ) -> Sequence[Record | None]:
        """Return what the function makes of each record; None leaves it out.

        Raises:
            TransformFailed: it raised, took too long, or returned what is no record.
        """
        ...


Change = InsertHeader | DropHeaders | DropRecord | UserFunction


@dataclass(frozen=True, slots=True)
class TransformStep:
    """One transform of a chain."""

    alias: str
    change: Change
    predicate: Predicate | None = None
    """Only records for which it is true are changed; None: all."""
    negate: bool = False

    def is_for(self, record: Record) -> bool:
        """Whether the step changes a record. The predicate of a step of a ``TopicChain`` is not one about topics."""
        if self.predicate is None or isinstance(self.predicate, TopicNameMatches):
            return True
        return self.predicate.matches(record) is not self.negate


@dataclass(frozen=True)
class TopicChain:
    """The transforms of a flow that may change records of one topic; at least one."""

    steps: tuple[TransformStep, ...]

    @cached_property
    def digest(self) -> str:
        """A hash of what the chain does: its classes, their settings, and the source of a user's module."""
        said = [
            [
                type(step.change).__name__,
                _settings_of(step.change),
                None
                if step.predicate is None
                else [type(step.predicate).__name__, asdict(step.predicate), step.negate],
            ]
            for step in self.steps
        ]
        text = json.dumps([RULES_VERSION, said], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @cached_property
    def calls_functions(self) -> bool:
        """It may take long: it must not run on the event loop."""
        return any(isinstance(step.change, UserFunction) for step in self.steps)

    def apply(
        self, records: Sequence[Record], *, topic: str, partition: int, functions: RunsFunctions | None = None
    ) -> Sequence[Record | None]:
        """Return what becomes of each record; None: it is left out.

        Args:
            topic: the remote topic, as in MirrorMaker 2.
            functions: calls the functions of users; needed only if the chain ``calls_functions``.
        Raises:
            TransformFailed: at the first record that does not come out; it names its offset.
        """
        found: list[Record | None] = list(records)
        for step in self.steps:
            change = step.change
            if isinstance(change, UserFunction):
                self._call(step, change, found, topic, partition, functions)
                continue
            for index, record in enumerate(found):
                if record is not None and step.is_for(record):
                    found[index] = change.change(record)
        return found

    def _call(
        self,
        step: TransformStep,
        function: UserFunction,
        found: list[Record | None],
        topic: str,
        partition: int,
        functions: RunsFunctions | None,
    ) -> None:
        if functions is None:
            raise AssertionError(f"nothing runs the function of the transform {step.alias}")
        at = [index for index, record in enumerate(found) if record is not None and step.is_for(record)]
        given = [record for index in at if (record := found[index]) is not None]
        for index, record in zip(at, functions.call(function, topic, partition, given), strict=True):
            found[index] = record


@dataclass(frozen=True, slots=True)
class TransformChain:
    """The transforms of a flow, in order."""

    steps: tuple[TransformStep, ...]

    def for_topic(self, remote_topic: str) -> TopicChain | None:
        """Return the transforms for the records of one topic; None: they are copied as they are.

        Raises:
            PatternTooSlow: the pattern of a predicate found no answer in time.
        """
        kept = []
        for step in self.steps:
            predicate = step.predicate
            if not isinstance(predicate, TopicNameMatches):
                kept.append(step)
            elif predicate.matches(remote_topic) is not step.negate:
                kept.append(TransformStep(step.alias, step.change))
        return TopicChain(tuple(kept)) if kept else None


def _settings_of(change: Change) -> object:
    match change:
        case InsertHeader():
            return [change.header, None if change.value is None else change.value.hex()]
        case DropHeaders():
            return sorted(change.headers)
        case DropRecord():
            return []
        case UserFunction():
            return [change.function, change.source_sha256]
