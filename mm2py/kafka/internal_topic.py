"""Topics that mm2py keeps for itself on a cluster: found or made, and turned down where they would lose what they keep.

Answers to TopicAdmin of Kafka Connect, and to MirrorUtils.createCompactedTopic of its mirror. What each topic is called
and how it is made stands in ``mm2py/topics/internal.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.kafka import admin
from mm2py.kafka.admin import NewTopic
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import Brokers
from mm2py.topics.internal import InternalTopic

CLEANUP: Final = ("cleanup.policy",)
Settings = Mapping[str, str | None]


class TopicNotMade(BrokerRefused):
    """The cluster refuses to make an internal topic, and asking again changes nothing."""

    def __init__(self, topic: InternalTopic, setting: str, refusal: BrokerRefused) -> None:
        by_hand = ", ".join(f"{key}={value}" for key, value in topic.configs.items())
        KafkaError.__init__(
            self,
            refusal.what,
            remedy=f"Set {setting} to what the cluster can hold, grant CREATE on {topic.name}, or"
            f" create it by hand with {topic.partitions} partition(s) and {by_hand}.",
        )
        self.code, self.reaction, self.retriable = refusal.code, refusal.reaction, False


class TopicUnsuitable(Mm2Error):
    """An internal topic is there, and its settings would make it lose what it keeps."""

    def __init__(self, topic: InternalTopic, wrong: Settings) -> None:
        self.why = f"its {' and its '.join(f'{key} is {value}' for key, value in wrong.items())}"
        self.wrong = wrong
        has = ", ".join(f"{key}={value}" for key, value in wrong.items())
        wanted = ", ".join(f"{key}={topic.configs[key]}" for key in wrong)
        super().__init__(f"{topic.name} would lose records: it has {has}.", remedy=f"Set {wanted} on it.")


async def find_or_make(
    brokers: Brokers,
    topic: InternalTopic,
    replication_factor: int,
    *,
    setting: str,
    made: Callable[[], None] = lambda: None,
    channel: str = "control",
) -> TopicMetadata:
    """Return an internal topic of which every partition has a leader; make it where there is none.

    Args:
        replication_factor: for a topic that has to be made; -1 leaves it to the cluster.
        setting: names the setting that it comes from, for an error.
        made: is called when this call has made the topic.
    Raises:
        TopicNotMade: it cannot be made.
        BrokerRefused: it has no leader yet, or the cluster does not say: ask again if the error is ``retriable``.
        KafkaError: as ``Brokers.send``.
    """
    name = str(topic.name)
    found = (await fetch_metadata(brokers, [name], channel=channel)).topics.get(name)
    if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
        new = NewTopic(name, topic.partitions, replication_factor, topic.configs)
        refusal = (await admin.create_topics(brokers, [new]))[name]
        if refusal is None:
            made()
        elif refusal.code != TOPIC_ALREADY_EXISTS:
            raise refusal if refusal.retriable else TopicNotMade(topic, setting, refusal)
        raise BrokerRefused(f"Waiting for {name}", LEADER_NOT_AVAILABLE)
    if found.error_code or any(part.leader is None for part in found.partitions.values()):
        code = found.error_code or LEADER_NOT_AVAILABLE
        raise BrokerRefused(f"Finding the leaders of {name}", code, remedy=f"mm2py needs DESCRIBE on {name}.")
    return found


async def read_settings(
    brokers: Brokers, topic: InternalTopic, *, must_be: Sequence[str] = CLEANUP, channel: str = "control"
) -> Settings | BrokerRefused:
    """Return the settings that a topic has, as far as it is made with them, or why the cluster does not tell.

    Args:
        must_be: the settings without which the topic is of no use.
    Raises:
        TopicUnsuitable: one of them has another value.
        KafkaError: as ``Brokers.send``.
    """
    name = str(topic.name)
    found = (await admin.describe_topic_configs(brokers, [name], keys=list(topic.configs), channel=channel))[name]
    if isinstance(found, BrokerRefused):
        return found
    has = {entry.name: entry.value for entry in found}
    wrong = {key: has[key] for key in must_be if key in has and has[key] != topic.configs[key]}
    if wrong:
        raise TopicUnsuitable(topic, wrong)
    return has
