"""Stores the records that the target refuses, whole, in ``mm2-quarantine.A.internal`` on the target.

MirrorMaker 2 has nothing like it: its task fails. A refused record is read again from the source, alone, so none has to
stay in memory. It is written under the flow's producer id, and acknowledged, before copying continues after it. After a
crash in between it is refused again, and stored again under the same key.
"""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import Final

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import Poison
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import Outgoing, TargetRules
from mm2py.copying.reading.beside_loop import planned_by
from mm2py.errors import Mm2Error
from mm2py.kafka import admin, internal_topic
from mm2py.kafka.admin import describe_topic_acls
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import (
    LEADER_NOT_AVAILABLE,
    SECURITY_DISABLED,
)
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError, Reaction
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import ANY_BROKER, FetchRequest, PartitionFetch, TopicFetch
from mm2py.records.batch import NewRecord, Record, each_record
from mm2py.records.quarantined import Provenance, QuarantineEntry, RecordOrigin, encode_quarantined
from mm2py.topics.acls import reader_beyond
from mm2py.topics.names import QUARANTINED_MAX_BYTES, quarantine
from mm2py_connectors.source.context import FlowContext

CHANNEL: Final = "quarantine"
_MUST_BE: Final = ("cleanup.policy", "retention.ms", "retention.bytes")
ATTEMPTS: Final = 5
"""How many times in a row a cluster that does not answer is asked before the partition pauses."""
READERS_KNOWN_S: Final = 60.0
"""How long an answer on who may read is used."""
_ONE_BATCH_BYTES: Final = 1
"""A broker always answers with the first batch whole."""
_ROOM_BYTES: Final = 64 << 10
"""For the provenance, and for the parts of a request around the batch."""
_ANY_SIZE: Final = TargetRules(max_message_bytes=1 << 31)
_OPEN_WITHOUT_ACL: Final = "allow.everyone.if.no.acl.found"


class QuarantineUnusable(Mm2Error):
    """A record cannot be kept in quarantine for now: its partition waits as with ``on.poison.record=stop``."""


class AnotherRead(KafkaError):
    """The source did not send the refused record: it arrived damaged, or the log has changed."""

    retriable = True

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} brought no record.", remedy="It is read again.")


class Quarantine:
    """The quarantine of one flow."""

    def __init__(self, context: FlowContext, source_id: str | None) -> None:
        self._context = context
        self._flow = context.flow
        self._target = context.target.brokers
        self._source_id = source_id
        self._clock = context.clock
        self._log = context.log
        self._topic = quarantine(context.flow.source)
        self._writer = TopicWriter(
            self._target,
            self._topic.name,
            context.incarnation,
            rng=context.rng,
            timeout_ms=int(context.settings.target_request_timeout_s * 500),
            remedy=f"Grant mm2py WRITE on {self._topic.name}, or raise its max.message.bytes.",
            channel=CHANNEL,
            waits_for_topic=False,
        )
        self._one_at_a_time = asyncio.Lock()
        self._is_there = False
        self._topic_id: uuid.UUID | None = None
        self._readers_known_s: dict[str, float] = {}
        self._said: set[tuple[str, str]] = set()

    async def keep(self, part: CopiedPartition, poison: Poison) -> bool:
        """Store the record. Returns True when the target has acknowledged it, False if it could not be stored.

        A failure is logged once; the partition waits and asks again. Cancelling may leave the record stored or not.

        Raises:
            IncarnationFenced, EpochRefused: the flow's producer id cannot be used any more.
        """
        backoff = Backoff(self._context.rng, most_s=2.0)
        error: Mm2Error
        for _ in range(ATTEMPTS):
            try:
                async with self._one_at_a_time:
                    await self._keep(part, poison)
            except QuarantineUnusable as refusal:
                error = refusal
                break
            except KafkaError as trouble:
                error = trouble
                if not trouble.may_be_mended:
                    raise
                if not trouble.retriable:
                    break
                await asyncio.sleep(backoff.next_s())
            else:
                return True
        if (part.source_topic, str(error)) not in self._said:
            self._said.add((part.source_topic, str(error)))
            self._log.error(
                "quarantine.failing",
                topic=part.source_topic,
                partition=part.partition,
                why=str(error),
                effect=f"the partition waits at source offset {poison.offset}; it is tried again every 30 seconds",
            )
        return False

    async def _keep(self, part: CopiedPartition, poison: Poison) -> None:
        await self._check_readers(part.target_topic)
        await self._make_topic()
        record = await self._read(part, poison.offset)
        topic_id = None if part.source_topic_id is None else str(part.source_topic_id)
        kept = QuarantineEntry(
            Provenance(
                str(self._flow),
                self._source_id,
                RecordOrigin(part.source_topic, part.partition, poison.offset, topic_id),
                record.timestamp_ms,
                poison.code,
                poison.text,
                self._clock.wall_ms(),
            ),
            NewRecord(record.key, record.value, record.timestamp_ms, record.headers),
        )
        size = len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") + 20 for name, value in record.headers)
        if size > QUARANTINED_MAX_BYTES - _ROOM_BYTES:
            raise QuarantineUnusable(
                f"The record has {size} bytes, more than {self._topic.name} takes.",
                remedy="Let the remote topic take it, or set on.poison.record=stop.",
            )
        await self._writer.write({0: [encode_quarantined(kept)]})

    async def _read(self, part: CopiedPartition, offset: int) -> Record:
        """Read one record from the source again, with its batch, which ``memory.max.bytes`` does not count.

        Raises:
            BrokerRefused, AnotherRead: the source does not send it; the copier meets the cause when it reads on.
        """
        what = f"Reading {part.source_topic}-{part.partition} at offset {offset}"
        if part.leaders.source is None:
            raise BrokerRefused(what, LEADER_NOT_AVAILABLE)
        epoch = part.copier.position.source_leader_epoch
        wanted = PartitionFetch(part.partition, offset, _ONE_BATCH_BYTES, part.leaders.source_epoch, epoch)
        request = FetchRequest(
            [TopicFetch(part.source_topic, part.source_topic_id, [wanted])],
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_ONE_BATCH_BYTES,
            read_committed=False,
            answer_all=True,
        )
        reply = await self._context.source.brokers.send(part.leaders.source, request, channel=CHANNEL)
        code = reply.error_code or next((found.error_code for found in reply.partitions), 0)
        if code:
            raise BrokerRefused(what, code)
        for found in reply.partitions:
            make = partial(
                plan,
                found.records,
                wanted_offset=offset,
                read_committed=False,
                aborted=(),
                rules=_ANY_SIZE,
                cut_until=offset + 1,
                transforms=part.transforms,  # what they take out of a record must not reach the target
            )
            planned = await planned_by(make)
            step = planned.steps[0] if planned.steps else None
            if isinstance(step, Outgoing) and step.first_offset == offset:
                return next(each_record(step.data))
        raise AnotherRead(what)

    # The topic

    async def _make_topic(self) -> None:
        """Make sure that the topic exists and keeps its records: it may be deleted, and created with other settings."""
        try:
            found = await internal_topic.find_or_make(
                self._target,
                self._topic,
                self._context.settings.offsets_topic_replication_factor,
                setting="offset.storage.replication.factor",
                made=self._note_made,
            )
            if not self._is_there or found.topic_id != self._topic_id:
                await self._check_topic()
        except internal_topic.TopicNotMade as error:
            raise QuarantineUnusable(
                f"{self._topic.name} cannot be made on {self._flow.target}: {error.what}",
                remedy=f"{error.remedy} Where that is more than the cluster allows, a smaller max.message.bytes will do"
                " for smaller records.",
            ) from error
        self._is_there, self._topic_id = True, found.topic_id

    def _note_made(self) -> None:
        if self._is_there:
            self._is_there = False
            self._log.error(
                "quarantine.topic_gone",
                quarantine=self._topic.name,
                effect="the records in it are gone; it is created again for records that are refused from now on",
                remedy="Do not delete it. record.quarantined in the log names the records that it held; the source has"
                " them as long as it keeps its records.",
            )
        self._log.info("quarantine.created", quarantine=self._topic.name)

    async def _check_topic(self) -> None:
        name = self._topic.name
        try:
            found = await internal_topic.read_settings(self._target, self._topic, must_be=_MUST_BE)
        except internal_topic.TopicUnsuitable as error:
            raise QuarantineUnusable(error.what, remedy=error.remedy) from error
        if isinstance(found, BrokerRefused):
            if found.reaction is not Reaction.DENIED:
                raise found  # a broker may not have heard yet of the topic that was just made
            raise QuarantineUnusable(
                f"Whether {name} keeps its records is not known: {found}",
                remedy=f"Grant mm2py DESCRIBE_CONFIGS on {name}.",
            )

    async def _check_readers(self, remote: str) -> None:
        """Make sure that every principal that can read the quarantine may also read the remote topic."""
        now_s = self._clock.monotonic()
        if now_s - self._readers_known_s.get(remote, float("-inf")) < READERS_KNOWN_S:
            return
        name, target = self._topic.name, self._flow.target
        try:
            acls = await describe_topic_acls(self._target, channel=CHANNEL)
        except BrokerRefused as error:
            if error.code == SECURITY_DISABLED:  # every client reads all topics
                self._readers_known_s[remote] = now_s
                return
            if error.reaction is not Reaction.DENIED:
                raise
            raise QuarantineUnusable(
                f"Who may read {name} on {target} is not known: {error.what}",
                remedy=f"Grant mm2py DESCRIBE on the cluster resource of {target}.",
            ) from error
        who = reader_beyond(acls, quarantine=name, remote=remote, open_without_acl=await self._is_open_without_acl())
        if who is not None:
            raise QuarantineUnusable(
                f"{name} on {target} could be read by {who}: more than may read {remote}.",
                remedy=f"Take that right away by an ACL on {name} itself, such as ALLOW READ for those who are to look "
                "at refused records, or DENY READ for those who are not.",
            )
        self._readers_known_s[remote] = now_s

    async def _is_open_without_acl(self) -> bool:
        """Return whether every client may read topics without an ACL. If brokers hide the value, it counts as true."""
        metadata = await fetch_metadata(self._target, [])
        broker = next(iter(metadata.brokers), ANY_BROKER)
        entry = await admin.broker_config_entry(self._target, broker, _OPEN_WITHOUT_ACL)
        if isinstance(entry, BrokerRefused):
            return True
        return entry is not None and (entry.value or "true").strip().lower() != "false"
