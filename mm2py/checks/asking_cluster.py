"""Asks one cluster what does not depend on a flow: addresses, logins, versions, rights on the cluster, round trips."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from mm2py.checks import questions
from mm2py.checks.facts import BootstrapAnswer, BrokerAnswer, ClusterAnswers, Obstacle, Unanswered
from mm2py.checks.principal import principal_of
from mm2py.config.settings import ClusterSettings
from mm2py.errors import Mm2Error, for_each
from mm2py.kafka.cluster import Cluster, fetch_metadata
from mm2py.kafka.errors import AuthenticationFailed, KafkaError, RequestTimedOut
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.kafka.transport.opening import peer_name
from mm2py.kafka.trial_brokers import TrialBrokers

PART_S: Final = 30.0
"""How long one question may take, such as the settings of all topics."""
ROUND_TRIPS: Final = 4
"""How often a broker is asked for the shortest round trip."""
BROKERS_AT_ONCE: Final = 32
BROKER_SETTINGS: Final = (
    "message.max.bytes",
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
    "log.retention.bytes",
    "log.cleanup.policy",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "transaction.state.log.replication.factor",
)

T = TypeVar("T")


async def asked(
    doing: str, alias: str, work: Callable[[], Awaitable[T]], *, within_s: float = PART_S
) -> T | Unanswered:
    """Ask one question, and return the answer, or why there is none.

    Args:
        doing: what is asked, for the message that it took too long.
    """
    try:
        async with asyncio.timeout(within_s):
            return await work()
    except TimeoutError:
        return Unanswered(
            f"{alias} does not answer: {doing} took more than {within_s:g} s.", "Check its brokers and the network."
        )
    except Mm2Error as error:
        return Unanswered.of(error)


async def ask_cluster(subject: str, settings: ClusterSettings, cluster: Cluster) -> ClusterAnswers:
    """Return what a cluster answers to one user.

    Args:
        subject: how results name it.
    """
    principal, ends_ms = await asyncio.to_thread(principal_of, settings.security)
    bootstrap = await _bootstrap(settings, cluster)
    base = ClusterAnswers(
        subject=subject,
        alias=settings.alias,
        security=settings.security,
        principal=principal,
        certificate_ends_ms=ends_ms,
        bootstrap=bootstrap,
        cluster_id=next((one.cluster_id for one in bootstrap if one.cluster_id is not None), None),
    )
    return base if base.away is not None else await _answering(base, TrialBrokers(cluster))


async def _bootstrap(settings: ClusterSettings, cluster: Cluster) -> tuple[BootstrapAnswer, ...]:
    """Ask each address; a login that was refused at one is not tried at the others: that locks accounts."""
    addresses = [(host, port) for host, port in settings.bootstrap_servers]
    answers: dict[tuple[str, int], str | KafkaError | None] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PART_S):
            if settings.security.sasl is not None:
                for address in addresses:
                    answers |= await cluster.bootstrap_answers([address])
                    found_there = answers[address]
                    if isinstance(found_there, AuthenticationFailed):
                        answers = {**dict.fromkeys(addresses, found_there), **answers}
                    if isinstance(found_there, AuthenticationFailed) or not isinstance(found_there, KafkaError):
                        break
            answers |= await cluster.bootstrap_answers([one for one in addresses if one not in answers])
    late = {one: RequestTimedOut(peer_name(*one), "Metadata", PART_S) for one in addresses if one not in answers}
    answers |= late
    ids = {answer for answer in answers.values() if not isinstance(answer, KafkaError)}
    found: list[BootstrapAnswer] = []
    for host, port in addresses:
        answer = answers[host, port]
        name = peer_name(host, port)
        if isinstance(answer, KafkaError):
            found.append(BootstrapAnswer(name, unanswered=Unanswered.of(answer)))
        elif len(ids) > 1:
            foreign = Unanswered(
                f"The addresses of {settings.alias} lead to {len(ids)} clusters: {', '.join(sorted(map(str, ids)))}.",
                f"Let {settings.alias}.bootstrap.servers name brokers of one cluster only.",
                Obstacle.FOREIGN,
            )
            found.append(BootstrapAnswer(name, answer, foreign))
        else:
            found.append(BootstrapAnswer(name, answer))
    return tuple(found)


async def _answering(base: ClusterAnswers, cluster: Brokers) -> ClusterAnswers:
    alias = str(base.alias)
    metadata = await asked("listing its brokers", alias, lambda: fetch_metadata(cluster, []))
    if isinstance(metadata, Unanswered):
        return replace(base, silent=metadata)
    brokers: dict[BrokerId, BrokerAnswer] = {}

    async def look_at(broker: BrokerId) -> None:
        address = peer_name(*metadata.brokers[broker])
        found = await asked(f"reaching broker {broker}", alias, lambda: _versions(cluster, broker))
        if isinstance(found, Unanswered):
            brokers[broker] = BrokerAnswer(int(broker), address, unanswered=found)
        else:
            versions, level, round_trip_s = found
            brokers[broker] = BrokerAnswer(int(broker), address, None, versions, level, round_trip_s)

    await for_each(metadata.brokers, look_at, at_once=BROKERS_AT_ONCE, name=f"reaching brokers of {alias}")
    reached = [broker for broker in sorted(brokers) if brokers[broker].unanswered is None]
    operations, authorizer, settings = await asyncio.gather(
        asked("asking for rights", alias, lambda: questions.operations_on_cluster(cluster)),
        asked("looking for an authorizer", alias, lambda: questions.has_authorizer(cluster)),
        asked("reading settings of a broker", alias, lambda: _settings(cluster, reached)),
    )
    told = None if isinstance(operations, Unanswered) else operations
    return replace(
        base,
        brokers=tuple(brokers[broker] for broker in sorted(brokers)),
        broker_settings={} if isinstance(settings, Unanswered) else settings,
        settings_unread=settings if isinstance(settings, Unanswered) else None,
        operations=told,
        has_authorizer=None if isinstance(authorizer, Unanswered) else authorizer,
        may_create_topics=None if told is None else "CREATE" in told,
    )


async def _versions(cluster: Brokers, broker: BrokerId) -> tuple[dict[int, tuple[int, int]], int | None, float]:
    loop = asyncio.get_running_loop()
    shortest_s = float("inf")
    for _ in range(ROUND_TRIPS + 1):  # the first one also connects
        begun_s = loop.time()
        versions, level = await questions.versions_of(cluster, broker)
        shortest_s = min(shortest_s, loop.time() - begun_s)
    return versions, level, shortest_s


async def _settings(cluster: Brokers, reached: list[BrokerId]) -> dict[str, str | None]:
    if not reached:
        return {}
    found = await questions.settings_of_broker(cluster, reached[0], BROKER_SETTINGS)
    minutes = found.pop("log.retention.minutes", None)
    if found.get("log.retention.ms") is None and minutes is not None:
        found["log.retention.ms"] = str(int(minutes) * 60_000)
    return found
