"""A topic of the target cluster, read from its start to its end by aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import IllegalStateError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from mm2py.errors import Mm2Error

POLL_MS: Final = 100
RECORDS_AT_ONCE: Final = 1000
"""After this many records the application's other tasks run."""


class MissingTopic(Mm2Error):
    """The target cluster has no such topic, or does not show it to the application."""

    def __init__(self, topic: str, *, remedy: str) -> None:
        super().__init__(f"The cluster shows no topic {topic}.", remedy=remedy)
        self.topic = topic


class ReadDenied(Mm2Error):
    """The target cluster does not let the application read a topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"The application may not read the topic {topic}.", remedy=f"Grant its principal READ on {topic}."
        )
        self.topic = topic


async def read_to_end(
    topic: str, options: Mapping[str, Any], take: Callable[[ConsumerRecord], None], *, remedy: str
) -> None:
    """Pass every committed record to ``take``, up to where each partition ended when the read began.

    Each partition is read in order. Its end is its last stable offset, so records from the first open transaction on
    are not read.

    Args:
        topic: must exist. A broker might create a missing topic.
        options: arguments of ``AIOKafkaConsumer``: no group, ``read_committed``, from the start.
        remedy: for MissingTopic.
    Raises:
        MissingTopic: the topic was deleted meanwhile.
        ReadDenied: the application may not read the topic.
        KafkaError: of aiokafka, for example because no broker can be reached.
    """
    consumer = AIOKafkaConsumer(topic, **options)
    try:
        await consumer.start()
        ends = await consumer.end_offsets(consumer.assignment())
        unread = {place for place, end in ends.items() if end > 0}
        while unread:
            batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_AT_ONCE)
            for records in batches.values():
                for record in records:
                    take(record)
            unread = {place for place in unread if await consumer.position(place) < ends[place]}
            await asyncio.sleep(0)
    except TopicAuthorizationFailedError as error:
        raise ReadDenied(topic) from error
    except (UnknownTopicOrPartitionError, IllegalStateError) as error:
        raise MissingTopic(topic, remedy=remedy) from error
    finally:
        await stop(consumer)


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Close a consumer, also one that has only just started, or that has lost its brokers.

    Its own ``stop`` cancels its tasks and waits for them. A task that has not begun, or waits to repeat a failed fetch,
    then raises CancelledError. ``stop`` passes that on before it has closed everything, and our caller would take it
    for a cancellation. Source: https://github.com/aio-libs/aiokafka/issues/647, open in 0.14.
    """
    outcome: BaseException | None = (await asyncio.gather(consumer.stop(), return_exceptions=True))[0]
    if isinstance(outcome, asyncio.CancelledError):
        for part in filter(None, (consumer._fetcher, consumer._client)):
            await asyncio.gather(part.close(), return_exceptions=True)
    elif outcome is not None:
        raise outcome
