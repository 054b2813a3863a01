"""Brokers that change nothing: for ``mm2py check``, and for a trial run of the code that would change them.

Requests that only read go to the cluster. A request to create a topic, to add partitions or to change settings of a
topic goes with ``validate_only``: the cluster answers as it would, by its policies, rights and numbers of brokers, and
changes nothing. New ACLs are only noted, as brokers cannot try them. Any other request is refused, whatever it may do.

MirrorMaker 2 has no trial run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, overload

from kio.static.protocol import Payload

from mm2py.kafka import messages
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest, ProduceReply, ProduceRequest
from mm2py.kafka.write_gate import READS

READING: Final = tuple(kind for kind in READS if kind is not messages.FindCoordinatorRequest)
"""Requests that change nothing. FindCoordinator makes brokers create ``__consumer_offsets``, and is none of them.
Metadata is asked for without creating topics (``fetch_metadata``)."""
VALIDATED: Final = (
    messages.CreateTopicsRequest,
    messages.CreatePartitionsRequest,
    messages.IncrementalAlterConfigsRequest,
)
"""Requests that a cluster can answer without doing them."""


class WouldChange(AssertionError):
    """A trial run has met a request that a cluster cannot answer without doing it: a defect of mm2py."""


class TrialBrokers:
    """The brokers of one cluster, for a trial run."""

    def __init__(self, brokers: Brokers) -> None:
        self.created: dict[str, messages.CreatableTopic] = {}
        """By name, the topics that would have been created: requests that were not trials themselves."""
        self.widened: dict[str, int] = {}
        """The partitions in all of topics that would have got more."""
        self._brokers = brokers

    @overload
    async def send(self, broker: BrokerId, request: FetchRequest, *, channel: str = ...) -> FetchReply: ...
    @overload
    async def send(self, broker: BrokerId, request: ProduceRequest, *, channel: str = ...) -> ProduceReply: ...
    @overload
    async def send(self, broker: BrokerId, request: Payload, *, channel: str = ...) -> Payload: ...

    async def send(
        self, broker: BrokerId, request: FetchRequest | ProduceRequest | Payload, *, channel: str = "control"
    ) -> object:
        """Send a request, or a trial of it. Raises: WouldChange; as ``Brokers.send``."""
        if isinstance(request, messages.MetadataRequest) and request.allow_auto_topic_creation:
            raise WouldChange("a request for metadata that creates topics")
        if isinstance(request, READING):
            return await self._brokers.send(broker, request, channel=channel)
        if not isinstance(request, VALIDATED):
            raise WouldChange(type(request).__name__)
        reply = await self._brokers.send(broker, replace(request, validate_only=True), channel=channel)
        if not request.validate_only:
            self._note(request, reply)
        return reply

    def round_trip_s(self, broker: BrokerId) -> float | None:
        return self._brokers.round_trip_s(broker)

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        self._brokers.close_channel(broker, channel)

    def _note(self, request: Payload, reply: Payload) -> None:
        match request, reply:
            case messages.CreateTopicsRequest(), messages.CreateTopicsResponse():
                fine = {str(topic.name) for topic in reply.topics if not topic.error_code}
                self.created |= {str(topic.name): topic for topic in request.topics if str(topic.name) in fine}
            case messages.CreatePartitionsRequest(), messages.CreatePartitionsResponse():
                fine = {str(result.name) for result in reply.results if not result.error_code}
                self.widened |= {str(topic.name): int(topic.count) for topic in request.topics if topic.name in fine}
            case _:
                pass


def configs_of(topic: messages.CreatableTopic) -> dict[str, str]:
    """Return the settings with which a topic would be created."""
    configs: Sequence[messages.CreatableTopicConfig] = topic.configs
    return {config.name: config.value for config in configs if config.value is not None}
