"""Hands the positions of a flow back to the mirror that ran before.

A dedicated MirrorMaker 2 reads the offsets topic of mm2py itself. Kafka Connect takes offsets over its REST while the
connector is stopped; a Connect of Strimzi reads them from its own topic at its next start. Offset syncs and checkpoints
are in the topics of MirrorMaker 2, under the same names, all the time.

Counterpart: KIP-875 of Apache Kafka, by which an operator alters the offsets of a connector.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.connector_offsets.offsets_body import body_of
from mm2py.copying.positions import read_positions
from mm2py.flow import ClusterAlias, Kind
from mm2py.kafka.admin import describe_group, find_coordinator
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.records.operator_request import TargetState
from mm2py.records.source_offset import StoredPosition
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.takeover.connect_rest import ConnectRest
from mm2py.takeover.connector_configs import read_connectors
from mm2py.takeover.return_plan import ReturnPlan, plan_return
from mm2py.takeover.switching import SwitchRefused, positions_in, topic_named, write_positions
from mm2py.takeover.what_runs import RunningFlow
from mm2py.uninstall.asking import ask_remains


async def ask_return(
    file: SettingsFile,
    settings: FlowSettings,
    clusters: Mapping[ClusterAlias, Brokers],
    *,
    clock: Clock,
    rng: random.Random,
) -> tuple[ReturnPlan, Sequence[str]]:
    """Return what may be handed back, and who uses the flow, a sentence each. Raises: Mm2Error, it cannot be read."""
    target = clusters[settings.flow.target]
    asked = await ask_remains(file, settings, clusters, clock=clock, rng=rng)
    table = ConfigTable(target, settings.configs_topic)
    await table.read()
    records = table.records
    state = records.target_of(Kind.SOURCE).state
    held = "standby" if records.direction.hold is not None else "" if state is TargetState.STARTED else str(state)
    topic = await topic_named(target, settings.offsets_topic)
    found: tuple[Mapping[TopicPartition, StoredPosition], Sequence[str]] = ({}, ())
    if topic is not None:
        found = await until_answered(lambda: read_positions(target, topic, settings.flow.source), rng=rng)
    pauses = records.pauses
    plan = plan_return(settings.flow, found[0], malformed=found[1], held=held.lower(), pauses=pauses)
    return plan, asked.remains.users


async def source_connector(rest: ConnectRest, settings: FlowSettings, name: str | None) -> str:
    """Return the name of the source connector of a flow on a Connect cluster.

    Args:
        name: by the operator; None: the only one with the aliases of the flow.
    Raises:
        SwitchRefused: there is none, or there are several.
        ConnectFailed: Connect does not answer.
    """
    flow = settings.flow
    connectors, _ = read_connectors(await rest.connectors(), str(rest))
    found = [
        one.name
        for one in connectors
        if (one.kind, one.source, one.target) == (Kind.SOURCE, flow.source, flow.target) and name in {None, one.name}
    ]
    if len(found) != 1:
        raise SwitchRefused(
            f"{rest} has {len(found)} source connectors of {flow}{'' if name is None else f' called {name}'}.",
            remedy="Name one with --connector, with the aliases of the flow.",
        )
    return found[0]


async def to_connect(
    rest: ConnectRest, name: str, flow_source: ClusterAlias, positions: Mapping[TopicPartition, int]
) -> None:
    """Set the offsets of a connector that is stopped, and read them back.

    Raises:
        SwitchRefused: it runs, or has other offsets afterwards.
        ConnectFailed: Connect does not answer, or refuses.
    """
    runs = await rest.runs(name)
    if not runs.is_stopped:
        raise SwitchRefused(
            f"Connector {name} is {runs.state}, with {runs.tasks} task(s).",
            remedy=f"Stop it first: PUT {rest}/connectors/{name}/stop.",
        )
    stored = {key: StoredPosition(next_source=at) for key, at in positions.items()}
    body = body_of(stored, flow_source)
    await rest.alter_offsets(name, body)
    told = await rest.offsets(name)
    wanted = {_entry(one) for one in body["offsets"]}
    if not wanted <= {_entry(one) for one in told.get("offsets", ())}:
        raise SwitchRefused(f"Connector {name} has other offsets than were set.", remedy="Call the command again.")


def _entry(one: Mapping[str, Mapping[str, object]]) -> tuple[object, ...]:
    partition, offset = one.get("partition") or {}, one.get("offset") or {}
    return partition.get("cluster"), partition.get("topic"), partition.get("partition"), offset.get("offset")


async def to_strimzi(
    running: RunningFlow,
    settings: FlowSettings,
    target: Brokers,
    positions: Mapping[TopicPartition, int],
    *,
    clock: Clock,
    rng: random.Random,
) -> None:
    """Write positions where the Connect of a resource reads them at its next start, and read them back.

    Raises:
        SwitchRefused: its workers live, or its topic is missing or holds something else afterwards.
        KafkaError: the target does not answer, or refuses.
    """
    coordinator = await find_coordinator(target, running.group, transactions=False)
    group = await describe_group(target, coordinator, running.group)
    if group.members:
        raise SwitchRefused(
            f"Group {running.group} on {settings.flow.target} has {group.members} member(s): Connect reads positions"
            " only when it starts.",
            remedy=f"Stop it first: {running.stop_command}",
        )
    topic = await topic_named(target, running.offsets_topic)
    if topic is None:
        raise SwitchRefused(
            f"There is no topic {running.offsets_topic} on {settings.flow.target}.",
            remedy="Start the resource once with state: stopped, which makes it, and stop it again.",
        )
    name = running.connectors[Kind.SOURCE]
    await write_positions(settings, target, topic, name, positions, clock=clock, rng=rng)
    found = await until_answered(
        lambda: positions_in(target, running.offsets_topic, name, settings.flow.source), rng=rng
    )
    if any(found.get(key) != at for key, at in positions.items()):
        raise SwitchRefused(f"{running.offsets_topic} holds other positions.", remedy="Call the command again.")
