"""What mm2py asks of consumer groups: how many requests it takes, and what an error of one group or broker does."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mm2py.kafka import error_codes, messages
from mm2py.kafka.admin import COORDINATORS_A_REQUEST
from mm2py.kafka.consumer_groups import (
    COMMITS_A_REQUEST,
    GROUPS_A_REQUEST,
    Commit,
    ListedGroup,
    commit_offsets,
    committed_offsets,
    find_coordinators,
    list_groups,
    refused_groups,
)
from mm2py.kafka.errors import BrokerRefused, BrokerUnreachable, CorruptReply, Reaction, ReplyTooLarge, RequestTimedOut
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock

ODD_NAMES = ("grüppe ☃", "a.*b", "a b/c:d", "", "-", "x" * 1000)


def a_cluster(nodes: int = 3) -> ClusterModel:
    cluster = ClusterModel("A", VirtualClock(), random.Random(1), nodes=nodes)
    cluster.create_topic("t", 3)
    return cluster


async def run(scenario: Callable[[ClusterModel], Coroutine[Any, Any, None]], *, nodes: int = 3) -> ClusterModel:
    cluster = a_cluster(nodes)
    await scenario(cluster)
    assert not cluster.complaints
    return cluster


def refusal_in(answer: object) -> BrokerRefused:
    assert isinstance(answer, BrokerRefused)
    return answer


# ---- listing


async def test_each_broker_is_asked_once_for_the_groups_that_it_coordinates() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        names = [f"group-{number}" for number in range(10_000)]
        for name in names:
            cluster.groups.commit(name, {})
        assert set(await list_groups(cluster)) == set(names)

    cluster = await run(scenario)
    assert cluster.counts["request ListGroups"] == 3


async def test_groups_are_listed_with_state_and_protocol_type_whatever_their_names() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        for name in ODD_NAMES:
            cluster.groups.commit(name, {("t", 0): (1, "")})
        cluster.groups.activate("busy")
        cluster.groups.activate("workers", protocol_type="connect")
        cluster.groups.activate("left")
        cluster.groups.deactivate("left")
        assert await list_groups(cluster) == {
            **{name: ListedGroup(name, "", "Empty") for name in ODD_NAMES},
            "busy": ListedGroup("busy", "consumer", "Stable"),
            "workers": ListedGroup("workers", "connect", "Stable"),
            "left": ListedGroup("left", "consumer", "Empty"),
        }

    await run(scenario)


async def test_no_groups_is_an_answer_too() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        assert await list_groups(cluster) == {}

    await run(scenario)


async def test_a_broker_that_does_not_list_its_groups_fails_the_list() -> None:
    """Its groups would look deleted."""

    async def scenario(cluster: ClusterModel) -> None:
        for number in range(10):
            cluster.groups.commit(f"g{number}", {})
        cluster.groups.list_errors[2] = ErrorCode.coordinator_load_in_progress
        with pytest.raises(BrokerRefused, match="broker 2") as caught:
            await list_groups(cluster)
        assert caught.value.retriable
        cluster.groups.list_errors.clear()
        assert len(await list_groups(cluster)) == 10
        cluster.hung_apis.add("ListGroups")
        with pytest.raises(RequestTimedOut):
            await list_groups(cluster)
        cluster.hung_apis.clear()
        cluster.stop_broker(3, clean=False)  # and the cluster still takes it for alive
        with pytest.raises(BrokerUnreachable):
            await list_groups(cluster)

    await run(scenario)


async def test_metadata_without_brokers_are_no_empty_list() -> None:
    """A broker that has just started may not know any broker, not even itself."""

    async def scenario(cluster: ClusterModel) -> None:
        cluster.groups.commit("g", {})
        for node in cluster.nodes.values():
            node.registered = False
        with pytest.raises(CorruptReply):
            await list_groups(cluster)

    await run(scenario)


# ---- coordinators and commits


async def test_ten_thousand_groups_take_few_requests() -> None:
    groups = [f"group-{number}" for number in range(10_000)]

    async def scenario(cluster: ClusterModel) -> None:
        for number, group in enumerate(groups):
            cluster.groups.commit(group, {("t", number % 3): (number, "")})
        found = await committed_offsets(cluster, groups)
        assert found == {group: {("t", number % 3): Commit(number)} for number, group in enumerate(groups)}

    cluster = await run(scenario)
    assert cluster.counts["request FindCoordinator"] == 10_000 / COORDINATORS_A_REQUEST
    coordinated = [sum(cluster.coordinator_of(group) == node for group in groups) for node in cluster.nodes]
    assert cluster.counts["request OffsetFetch"] == sum(-(-count // GROUPS_A_REQUEST) for count in coordinated)


async def test_commits_that_are_too_many_for_one_reply_are_asked_for_by_fewer_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = [f"group-{number}" for number in range(50)]

    async def scenario(cluster: ClusterModel) -> None:
        send, sizes = cluster.send, []

        async def limited(broker: Any, request: Any, *, channel: str = "control") -> Any:
            if isinstance(request, messages.OffsetFetchRequest):
                sizes.append(len(request.groups))
                if sizes[-1] > most:
                    raise ReplyTooLarge("a broker", "OffsetFetch", "more than it may have")
            return await send(broker, request, channel=channel)

        monkeypatch.setattr(cluster, "send", limited)
        for group in groups:
            cluster.groups.commit(group, {("t", 0): (1, "")})
        most = 15
        assert await committed_offsets(cluster, groups) == {group: {("t", 0): Commit(1)} for group in groups}
        assert sizes == [50, 25, 13, 12, 25, 13, 12]
        most = 0
        with pytest.raises(ReplyTooLarge):
            await committed_offsets(cluster, groups)

    await run(scenario, nodes=1)


async def test_it_takes_few_requests_to_ask_which_groups_may_not_be_committed_for() -> None:
    groups = [f"group-{number}" for number in range(1_000)]

    async def scenario(cluster: ClusterModel) -> None:
        cluster.groups.unwritable.add("group-7")
        cluster.groups.denied.add("group-8")
        cluster.groups.errors["group-9"] = ErrorCode.coordinator_load_in_progress
        found = await refused_groups(cluster, groups)
        assert {name: one.code for name, one in found.items()} == {
            "group-7": error_codes.GROUP_AUTHORIZATION_FAILED,
            "group-8": error_codes.GROUP_AUTHORIZATION_FAILED,
            "group-9": error_codes.COORDINATOR_LOAD_IN_PROGRESS,
        }
        assert str(found["group-7"]).endswith("Grant mm2py READ on group group-7.")
        assert found["group-9"].retriable

    cluster = await run(scenario)
    assert cluster.counts["request DescribeGroups"] <= 1_000 / GROUPS_A_REQUEST + len(cluster.nodes)


async def test_no_groups_take_no_request() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        assert await committed_offsets(cluster, []) == {}

    cluster = await run(scenario)
    assert cluster.counts["request FindCoordinator"] == cluster.counts["request OffsetFetch"] == 0


async def test_commits_come_back_as_they_are() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        for name in ODD_NAMES:
            cluster.groups.commit(name, {("t", 0): (0, ""), ("t", 2): (1 << 62, name[:100])})
        cluster.groups.commit("odd", {("t", 0): (-1, ""), ("t", 1): (7, "")})
        cluster.groups.activate("fresh")
        found = await committed_offsets(cluster, [*ODD_NAMES, *ODD_NAMES, "odd", "fresh", "unknown"])
        assert found == {
            **{name: {("t", 0): Commit(0), ("t", 2): Commit(1 << 62, name[:100])} for name in ODD_NAMES},
            "odd": {("t", 1): Commit(7)},
            "fresh": {},
            "unknown": {},
        }

    await run(scenario)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress],
)
async def test_a_stale_coordinator_concerns_its_groups_only(code: ErrorCode) -> None:
    async def scenario(cluster: ClusterModel) -> None:
        cluster.groups.commit("moved", {("t", 0): (1, "")})
        cluster.groups.commit("steady", {("t", 0): (2, "")})
        cluster.groups.errors["moved"] = code
        found = await committed_offsets(cluster, ["moved", "steady"])
        refusal = refusal_in(found.pop("moved"))
        assert (refusal.code, refusal.retriable) == (int(code), True)
        assert "group moved" in str(refusal)
        assert found == {"steady": {("t", 0): Commit(2)}}
        answers = await commit_offsets(cluster, "moved", {("t", 0): Commit(3)})
        assert refusal_in(answers["t", 0]).retriable
        assert cluster.groups.commits_of("moved") == {("t", 0): (1, "")}

    await run(scenario)


async def test_groups_without_a_coordinator_are_told_as_such() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        cluster.groups.available = False
        found = await find_coordinators(cluster, ["g"])
        assert refusal_in(found["g"]).code == error_codes.COORDINATOR_NOT_AVAILABLE
        assert refusal_in((await committed_offsets(cluster, ["g"]))["g"]).retriable
        assert refusal_in((await commit_offsets(cluster, "g", {("t", 0): Commit(3)}))["t", 0]).retriable
        cluster.groups.available = True
        assert await find_coordinators(cluster, ["g"]) == {"g": cluster.coordinator_of("g")}

    await run(scenario)


async def test_a_missing_right_names_the_group_and_the_right() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        cluster.groups.commit("open", {("t", 0): (1, "")})
        cluster.groups.denied.add("secret")
        found = await committed_offsets(cluster, ["secret", "open"])
        refusal = refusal_in(found["secret"])
        assert (refusal.reaction, refusal.remedy) == (Reaction.DENIED, "Grant mm2py DESCRIBE on group secret.")
        assert found["open"] == {("t", 0): Commit(1)}
        cluster.groups.unwritable.add("open")
        refusal = refusal_in((await commit_offsets(cluster, "open", {("t", 0): Commit(2)}))["t", 0])
        assert (refusal.reaction, refusal.remedy) == (Reaction.DENIED, "Grant mm2py READ on group open.")

    await run(scenario)


async def test_commits_in_topics_that_mm2py_may_not_describe_are_missing() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        cluster.create_topic("hidden", 1)
        cluster.groups.commit("g", {("t", 0): (1, ""), ("hidden", 0): (2, "")})
        cluster.denied_topics.add("hidden")
        assert await committed_offsets(cluster, ["g"]) == {"g": {("t", 0): Commit(1)}}
        answers = await commit_offsets(cluster, "g", {("hidden", 0): Commit(2), ("t", 0): Commit(5)})
        assert refusal_in(answers["hidden", 0]).remedy == "Grant mm2py READ on topic hidden."
        assert answers["t", 0] is None

    await run(scenario)


async def test_a_silent_coordinator_fails_the_question() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        for api, ask in (
            ("OffsetFetch", committed_offsets(cluster, ["g"])),
            ("OffsetCommit", commit_offsets(cluster, "g", {("t", 0): Commit(1)})),
        ):
            cluster.hung_apis.add(api)
            with pytest.raises(RequestTimedOut):
                await ask
        cluster.heal()

    await run(scenario)


# ---- committing


async def test_commits_for_a_group_without_members_are_stored_without_a_leader_epoch() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        for name in ODD_NAMES:
            commits = {("t", 0): Commit(5, "from the source"), ("t", 1): Commit(0)}
            assert await commit_offsets(cluster, name, commits) == {("t", 0): None, ("t", 1): None}
            assert await committed_offsets(cluster, [name]) == {name: commits}
            stored = cluster.groups.known[name].commits.values()
            assert {commit.leader_epoch for commit in stored} == {-1}

    await run(scenario)


async def test_a_group_with_members_is_left_alone_and_taken_again_when_they_have_left() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        cluster.groups.commit("busy", {("t", 0): (9, "own")})
        cluster.groups.activate("busy")
        refusal = refusal_in((await commit_offsets(cluster, "busy", {("t", 0): Commit(5)}))["t", 0])
        assert (refusal.code, refusal.retriable) == (error_codes.UNKNOWN_MEMBER_ID, False)
        assert "group busy" in str(refusal)
        assert cluster.groups.commits_of("busy") == {("t", 0): (9, "own")}
        cluster.groups.deactivate("busy")
        assert await commit_offsets(cluster, "busy", {("t", 0): Commit(5)}) == {("t", 0): None}
        assert cluster.groups.commits_of("busy") == {("t", 0): (5, "")}

    await run(scenario)


async def test_partitions_that_are_not_there_are_refused_and_the_others_are_stored() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        commits = {("t", 0): Commit(1), ("t", 3): Commit(2), ("missing", 0): Commit(3), ("t", 1): Commit(4, "x" * 4097)}
        answers = await commit_offsets(cluster, "g", commits)
        assert {key: answer and answer.code for key, answer in answers.items()} == {
            ("t", 0): None,
            ("t", 3): error_codes.UNKNOWN_TOPIC_OR_PARTITION,
            ("missing", 0): error_codes.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 1): int(ErrorCode.offset_metadata_too_large),
        }
        assert cluster.groups.commits_of("g") == {("t", 0): (1, "")}

    await run(scenario)


async def test_many_commits_are_sent_in_parts_that_a_coordinator_can_store() -> None:
    async def scenario(cluster: ClusterModel) -> None:
        cluster.create_topic("wide", 2 * COMMITS_A_REQUEST + 1)
        commits = {("wide", number): Commit(number) for number in range(2 * COMMITS_A_REQUEST + 1)}
        assert await commit_offsets(cluster, "g", commits) == dict.fromkeys(commits)
        assert await committed_offsets(cluster, ["g"]) == {"g": commits}
        assert await commit_offsets(cluster, "g", {}) == {}

    cluster = await run(scenario)
    assert cluster.counts["request OffsetCommit"] == 3
