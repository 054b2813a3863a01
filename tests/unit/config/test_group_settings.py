"""Settings of a group of workers: who elects its leader, how long a silent worker is waited for, ZooKeeper's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.config.configuration import load_configuration
from mm2py.config.settings import Configuration, GroupSettings, ZooKeeperSettings
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias
from mm2py.secret import Secret

ONE_FLOW = (
    "clusters=A,B\nA.bootstrap.servers=a.example:9092\nB.bootstrap.servers=b.example:9092\nA->B.enabled=true\n"
    "emit.heartbeats.enabled=false\n"
)
ZOOKEEPER = "B.leader.election=zookeeper\nB.zookeeper.connect=z1:2181,z2:2182/mirror\n"
PASSWORD = "xyzzy-never-shown"  # noqa: S105
B = ClusterAlias("B")

Load = Callable[[str], Configuration]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str) -> Configuration:
        path = tmp_path / "mm2.properties"
        path.write_text(ONE_FLOW + text)
        return load_configuration(path, None)

    return load


@pytest.fixture
def problem(load: Load) -> Callable[[str], str]:
    def problem(text: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text)
        assert PASSWORD not in str(caught.value)
        return str(caught.value).partition("mm2.properties")[2].lstrip(":, ")

    return problem


def zookeeper(configuration: Configuration) -> ZooKeeperSettings:
    found = configuration.groups[B].zookeeper
    assert found is not None
    return found


def test_without_settings_a_group_elects_through_its_log_and_waits_three_seconds(load: Load) -> None:
    assert load("").groups == {
        B: GroupSettings(B, "mm2py", session_timeout_s=3.0, heartbeat_interval_s=0.5, election="log", zookeeper=None)
    }


def test_every_target_has_a_group_and_its_own_settings_beat_those_at_the_top(load: Load) -> None:
    groups = load("B->A.enabled=true\nmm2py.group=x\nB.mm2py.group=y\nB.session.timeout.ms=9000\n").groups
    assert {alias: (group.name, group.session_timeout_s) for alias, group in groups.items()} == {
        "A": ("x", 3.0),
        "B": ("y", 9.0),
    }


def test_at_the_top_they_have_no_effect_as_in_mirrormaker_2_and_the_right_place_is_named(load: Load) -> None:
    configuration = load("session.timeout.ms=9000\n")
    assert configuration.groups[B].session_timeout_s == 3.0
    assert configuration.warnings == (
        "line 6: session.timeout.ms has no effect there, as in MirrorMaker 2; write it as <target>.session.timeout.ms",
    )


def test_a_third_of_the_time_out_is_the_longest_interval(load: Load, problem: Callable[[str], str]) -> None:
    assert load("B.heartbeat.interval.ms=1000\n").groups[B].heartbeat_interval_s == 1.0
    assert problem("B.heartbeat.interval.ms=1001\n") == (
        "line 6: B.heartbeat.interval.ms = '1001' is more than a third of session.timeout.ms, which is 3000 (a worker"
        " must be able to miss two heartbeats: write B.heartbeat.interval.ms = 1000 or less, or B.session.timeout.ms ="
        " 3003 or more)."
    )


def test_a_time_out_too_short_for_the_default_interval_is_refused(problem: Callable[[str], str]) -> None:
    assert problem("B.session.timeout.ms=1499\n").startswith(
        "line 6: B.session.timeout.ms = '1499' is less than three times heartbeat.interval.ms, which is 500"
    )


def test_zookeeper_is_read_with_its_servers_and_chroot(load: Load) -> None:
    configuration = load(ZOOKEEPER)
    assert configuration.groups[B].election == "zookeeper"
    assert zookeeper(configuration) == ZooKeeperSettings(
        (("z1", 2181), ("z2", 2182)), "/mirror", digest=None, set_acl=True, tls=None
    )
    assert configuration.warnings == ()


@pytest.mark.parametrize(
    ("text", "chroot"), [("z:2181", ""), ("z:2181/", ""), ("z:2181/a/b", "/a/b"), ("[::1]:2181/a", "/a")]
)
def test_a_chroot_may_be_missing_or_deep(load: Load, text: str, chroot: str) -> None:
    assert zookeeper(load(f"leader.election=zookeeper\nzookeeper.connect={text}\n")).chroot == chroot


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("/mirror", "is empty"),
        ("z", "there is no port"),
        ("z1:2181/a,z2:2181/a", "the chroot stands once"),
        ("z:2181//a", "no part of it may be empty"),
        ("z:2181/a/../b", "no part of it may be empty"),
    ],
)
def test_a_wrong_address_of_zookeeper_is_told(problem: Callable[[str], str], text: str, why: str) -> None:
    message = problem(f"leader.election=zookeeper\nzookeeper.connect={text}\n")
    assert message.startswith("line 7: zookeeper.connect = ") and why in message


def test_zookeeper_without_an_address_is_refused_with_what_to_write(problem: Callable[[str], str]) -> None:
    assert problem("B.leader.election=zookeeper\n") == (
        "line 6: B.leader.election = 'zookeeper' is not enough: zookeeper.connect is missing (write"
        " B.zookeeper.connect = host:2181,host:2181/chroot)."
    )


def test_a_group_that_cannot_be_a_node_is_refused(problem: Callable[[str], str], load: Load) -> None:
    assert problem(f"{ZOOKEEPER}B.mm2py.group=..\n").startswith("line 8: B.mm2py.group = '..' is no name for a node")
    assert load("B.mm2py.group=..\n").groups[B].name == ".."


def test_another_way_to_elect_is_refused(problem: Callable[[str], str]) -> None:
    assert problem("leader.election=etcd\n") == "line 6: leader.election = 'etcd' is not one of log, zookeeper."


def test_zookeeper_settings_without_its_election_are_named(load: Load) -> None:
    assert load("zookeeper.connect=z:2181\nzookeeper.set.acl=true\n").warnings == (
        "line 6: zookeeper.connect has no effect: the leader is elected through the control log; write"
        " leader.election = zookeeper, or remove it",
    )


def test_what_one_target_uses_is_not_idle_because_another_does_not(load: Load) -> None:
    configuration = load("B->A.enabled=true\nzookeeper.connect=z:2181\nB.leader.election=zookeeper\n")
    assert configuration.warnings == ()
    assert configuration.groups[ClusterAlias("A")].zookeeper is None


def test_the_digest_is_a_secret_and_in_plain_text_warned_about(load: Load) -> None:
    configuration = load(f"{ZOOKEEPER}B.zookeeper.auth.digest=mirror:{PASSWORD}\n")
    assert zookeeper(configuration).digest == Secret(f"mirror:{PASSWORD}")
    assert PASSWORD not in repr(configuration)
    assert configuration.warnings == (
        "line 8: B.zookeeper.auth.digest goes to ZooKeeper in plain text: anyone who listens can read the password; set"
        " zookeeper.ssl.client.enable",
    )


@pytest.mark.parametrize("text", [PASSWORD, f":{PASSWORD}", f"{PASSWORD}:"])
def test_a_digest_without_user_or_password_is_refused_and_not_shown(problem: Callable[[str], str], text: str) -> None:
    assert problem(f"{ZOOKEEPER}B.zookeeper.auth.digest={text}\n") == (
        "line 8: B.zookeeper.auth.digest = [hidden] is not user:password."
    )


def test_tls_to_zookeeper_checks_host_names_unless_told_otherwise(load: Load) -> None:
    text = (
        f"{ZOOKEEPER}B.zookeeper.ssl.client.enable=true\nB.zookeeper.ssl.truststore.type=PEM\n"
        "B.zookeeper.ssl.truststore.location=/ca.pem\nB.zookeeper.auth.digest=u:p\n"
    )
    configuration = load(text)
    tls = zookeeper(configuration).tls
    assert tls is not None and tls.trust is not None
    assert (tls.check_host_names, tls.trust.path, configuration.warnings) == (True, Path("/ca.pem"), ())
    unchecked = zookeeper(load(f"{text}B.zookeeper.ssl.endpoint.identification.algorithm=\n")).tls
    assert unchecked is not None and not unchecked.check_host_names


def test_tls_settings_that_do_not_go_together_are_told(problem: Callable[[str], str]) -> None:
    text = f"{ZOOKEEPER}B.zookeeper.ssl.client.enable=true\nB.zookeeper.ssl.truststore.password={PASSWORD}\n"
    assert "zookeeper of B: B.zookeeper.ssl.truststore.password (line 9) opens nothing" in problem(text)


def test_tls_settings_are_refused_where_the_connection_would_be_in_plain_text(problem: Callable[[str], str]) -> None:
    assert problem(f"{ZOOKEEPER}B.zookeeper.ssl.truststore.location=/ca.pem\n") == (
        "line 8: B.zookeeper.ssl.truststore.location = [hidden] is set, and the connection would be in plain text:"
        " write zookeeper.ssl.client.enable = true, or remove it."
    )
