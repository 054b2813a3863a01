"""Which pairs of clusters emit heartbeats, and what a file says of them: MirrorMaker 2's table of herders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mm2py.config.configuration import load_configuration
from mm2py.config.settings import ClusterSettings, Configuration, HeartbeatSettings
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, parse_flow

THREE = "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nC.bootstrap.servers=c:1\n"
ONE_FLOW = "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"

Load = Callable[..., Configuration]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str, clusters: Sequence[str] | None = None) -> Configuration:
        path = tmp_path / "mm2.properties"
        path.write_text(text)
        return load_configuration(path, clusters)

    return load


def emitting(configuration: Configuration) -> set[str]:
    return {str(one.flow) for one in configuration.heartbeats if one.interval_s is not None}


def pairs(configuration: Configuration) -> set[str]:
    return {str(one.flow) for one in configuration.heartbeats}


# -- which pairs -------------------------------------------------------------------------------------------------------


def test_every_pair_emits_by_default_even_if_no_flow_is_enabled(load: Load) -> None:
    configuration = load(THREE)
    assert emitting(configuration) == {"A->B", "A->C", "B->A", "B->C", "C->A", "C->B"}
    assert configuration.flows == ()
    (warning,) = configuration.warnings
    assert warning == (
        "no flow is enabled: nothing is copied, only heartbeats are emitted, of A->B, A->C, B->A, B->C, C->A, C->B;"
        " enable a flow with A->B.enabled = true"
    )


def test_a_pair_may_emit_where_all_others_do_not(load: Load) -> None:
    text = f"{THREE}emit.heartbeats.enabled=false\nA->B.enabled=true\nA->C.enabled=true\n"
    configuration = load(f"{text}C->B.emit.heartbeats.enabled=true\n")
    assert pairs(configuration) == {"A->B", "A->C", "C->B"}
    assert emitting(configuration) == {"C->B"}


def test_only_pairs_into_selected_clusters_emit(load: Load) -> None:
    assert emitting(load(THREE, ["B"])) == {"A->B", "C->B"}
    configuration = load(ONE_FLOW, ["A"])
    assert emitting(configuration) == {"B->A"}
    assert configuration.flows == ()
    assert configuration.warnings == (
        "no enabled flow leads into what --clusters names: only heartbeats are emitted, of B->A; enabled are A->B",
    )


# -- what is said of them ----------------------------------------------------------------------------------------------


def test_a_pair_without_settings_has_mirrormaker_2s_defaults(load: Load) -> None:
    assert load(ONE_FLOW).heartbeats[1] == HeartbeatSettings(
        flow=parse_flow("B->A"),
        target=ClusterSettings(ClusterAlias("A"), load(ONE_FLOW).flows[0].source.bootstrap_servers, 30.0, None),
        request_timeout_s=30.0,
        interval_s=1.0,
        replication_factor=3,
        compression=None,
    )


def test_a_pair_is_set_as_a_flow_is(load: Load) -> None:
    text = (
        f"{ONE_FLOW}emit.heartbeats.interval.seconds=5\nB->A.emit.heartbeats.interval.seconds=7\n"
        "heartbeats.topic.replication.factor=-1\nA.producer.compression.type=zstd\nA.producer.client.id=beat\n"
        "A.producer.request.timeout.ms=1500\n"
    )
    forth, back = load(text).heartbeats
    assert (forth.interval_s, back.interval_s) == (5.0, 7.0)
    assert (forth.replication_factor, back.compression, back.target.client_id) == (-1, "zstd", "beat")
    assert back.request_timeout_s == 1.5


def test_a_negative_interval_stops_it(load: Load) -> None:
    assert [one.interval_s for one in load(f"{ONE_FLOW}emit.heartbeats.interval.seconds=-1\n").heartbeats] == [None] * 2


def test_an_interval_of_zero_is_refused_with_its_line(load: Load) -> None:
    """MirrorMaker 2's connector fails on it."""
    wanted = "line 5: .*= '0' is 0; write at least 1, or a negative number to stop it"
    for line in ("emit.heartbeats.interval.seconds=0", "B->A.emit.heartbeats.interval.seconds=0"):
        with pytest.raises(ConfigError, match=wanted):
            load(f"{ONE_FLOW}{line}\n")


def test_every_cluster_that_gets_heartbeats_needs_an_address(load: Load) -> None:
    text = THREE.replace("C.bootstrap.servers=c:1\n", "A->B.enabled=true\n")
    with pytest.raises(ConfigError, match=r"C.bootstrap.servers is missing, heartbeats of A->C are emitted there"):
        load(text)
    assert emitting(load(text, ["A", "B"])) == {"A->B", "B->A", "C->A", "C->B"}


def test_a_flow_knows_how_often_heartbeats_come(load: Load) -> None:
    """Also when another process emits them: the rarest of those that the file has emitted into its source counts."""
    text = (
        f"{THREE}A->B.enabled=true\nB->A.emit.heartbeats.interval.seconds=3\nC->A.emit.heartbeats.interval.seconds=9\n"
    )
    assert load(text, ["B"]).flows[0].heartbeats_interval_s == 9.0
    none = f"{THREE}A->B.enabled=true\nB->A.emit.heartbeats.enabled=false\nC->A.emit.heartbeats.enabled=false\n"
    assert load(none).flows[0].heartbeats_interval_s is None


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_the_source_asks_for_does_not_keep_a_pair_from_emitting(load: Load) -> None:
    """It never touches its source."""
    configuration = load(f"{ONE_FLOW}A.consumer.interceptor.classes=X\n")
    assert list(map(str, configuration.refused)) == ["A->B"]
    assert emitting(configuration) == {"A->B", "B->A"}


def test_pairs_that_cannot_emit_are_told_once_for_each_reason(load: Load) -> None:
    configuration = load(f"{THREE}A->B.enabled=true\nC.producer.interceptor.classes=X\n")
    assert emitting(configuration) == {"A->B", "B->A", "C->A", "C->B"}
    (warning,) = configuration.warnings
    assert warning.startswith("heartbeats of A->C, B->C are not emitted: C.producer.interceptor.classes (line 6) ")


def test_a_refused_flow_is_told_once(load: Load) -> None:
    configuration = load(f"{ONE_FLOW}A->B.transforms=mask\n")
    assert list(map(str, configuration.refused)) == ["A->B"]
    assert emitting(configuration) == {"B->A"}
    assert configuration.warnings == ()


def test_a_slip_in_the_heartbeats_of_a_pair_is_told_though_its_flow_is_off(load: Load) -> None:
    (warning,) = load(f"{ONE_FLOW}B->A.emit.heartbeats.intervall.seconds=9\nB->A.topicss=x\n").warnings
    assert warning.startswith("line 5: B->A.emit.heartbeats.intervall.seconds is not known; did you mean")
    assert load(f"{ONE_FLOW}B->A.emit.heartbeats.interval.seconds=9\nB->A.groups=x\n").warnings == ()
