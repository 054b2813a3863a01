"""The starter's decisions: settings, ports, limits, names. No Java and no broker here."""

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.local.boot_image import kafka_uuid
from deploy.local.broker_settings import (
    CONTROLLER,
    Setting,
    all_listeners,
    broker_properties,
    plaintext_listener,
    render_properties,
    small_defaults,
)
from deploy.local.jars import POM, default_kafka_version, jar_directory_name
from deploy.local.java import major_version
from deploy.local.limits import shortage
from deploy.local.once import directory_made_once
from deploy.local.ports import HOST, candidate_ports, lease_ports

PORTS = {
    1: {CONTROLLER: 20_001, "PLAINTEXT": 20_002},
    2: {CONTROLLER: 20_003, "PLAINTEXT": 20_004},
    3: {CONTROLLER: 20_005, "PLAINTEXT": 20_006},
}


def properties_of(node_id: int, settings: Mapping[str, Setting] | None = None) -> dict[str, Setting]:
    return broker_properties(
        node_id,
        host=HOST,
        ports=PORTS,
        listeners={"PLAINTEXT": "PLAINTEXT"},
        log_dir="/data",
        settings=settings or {},
    )


def test_a_setting_that_the_starter_owns_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"log\.dirs, node\.id"):
        properties_of(1, {"node.id": 9, "log.dirs": "/elsewhere"})


@pytest.mark.parametrize(("nodes", "copies", "in_sync"), [(1, 1, 1), (2, 2, 2), (3, 3, 2), (5, 3, 2)])
def test_internal_topics_have_as_many_copies_as_the_nodes_allow(nodes: int, copies: int, in_sync: int) -> None:
    defaults = small_defaults(nodes)
    assert defaults["offsets.topic.replication.factor"] == copies
    assert defaults["transaction.state.log.replication.factor"] == copies
    assert defaults["transaction.state.log.min.isr"] == in_sync


def test_brokers_always_have_a_plaintext_listener_to_talk_over() -> None:
    assert all_listeners({"PLAINTEXT": "PLAINTEXT"}) == {"PLAINTEXT": "PLAINTEXT"}
    secured = all_listeners({"CLIENT": "SASL_SSL"})
    assert secured == {"CLIENT": "SASL_SSL", "INTERNAL": "PLAINTEXT"}
    assert plaintext_listener(secured) == "INTERNAL"
    with pytest.raises(ValueError, match="CONTROLLER"):
        all_listeners({"CONTROLLER": "PLAINTEXT"})


def test_properties_are_written_as_java_reads_them() -> None:
    written = render_properties({"a b": " c\\d", "on": True, "n": 3, "two": "x\ny", "word": "Größe 😀", "p": "a=b#c"})
    assert written.splitlines() == [
        r"a\ b=\ c\\d",
        "on=true",
        "n=3",
        r"two=x\ny",
        r"word=Gr\u00f6\u00dfe \ud83d\ude00",
        "p=a=b#c",
    ]


def test_ports_are_chosen_where_no_outgoing_connection_can_be_given_one() -> None:
    assert candidate_ports(32_768, 60_999) == range(15_000, 32_768)
    assert candidate_ports(15_500, 60_999) == range(61_000, 65_536)
    assert candidate_ports(1_024, 65_535) == range(15_000, 65_536)


def test_a_leased_port_is_given_to_nobody_else_until_it_is_released() -> None:
    leases = lease_ports(20)
    try:
        ports = {lease.port for lease in leases}
        assert len(ports) == 20
        others = lease_ports(200)
        assert ports.isdisjoint(lease.port for lease in others)
        for lease in others:
            lease.release()
    finally:
        for lease in leases:
            lease.release()
            lease.release()  # harmless: it must not close a file that has the number by now
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, leases[0].port))


def test_ids_are_22_characters_and_never_begin_with_a_dash() -> None:
    ids = {kafka_uuid() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(made) == 22 and "-" not in made for made in ids)


@pytest.mark.parametrize(
    ("printed", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no such thing", None),
    ],
)
def test_the_version_of_java_is_read_from_what_it_prints(printed: str, major: int | None) -> None:
    assert major_version(printed) == major


def test_a_jar_directory_changes_its_name_with_the_pom_and_with_the_version() -> None:
    pom = POM.read_text()
    version = default_kafka_version(pom)
    assert version.startswith("4.")
    names = {
        jar_directory_name(pom, version),
        jar_directory_name(pom, "3.3.2"),
        jar_directory_name(pom + " ", version),
    }
    assert len(names) == 3


def test_a_limit_that_is_too_low_is_named_with_the_command_that_raises_it() -> None:
    assert shortage(1_048_576, 65_530) is None
    assert shortage(-1, None) is None
    files = shortage(1_024, 65_530)
    assert files is not None
    assert "1024 files" in files[0]
    mappings = shortage(1_048_576, 1_000)
    assert mappings is not None
    assert mappings[1].endswith("sysctl -w vm.max_map_count=65530")


def test_a_directory_is_made_once_and_a_failed_attempt_leaves_nothing(tmp_path: Path) -> None:
    wanted = tmp_path / "cache" / "jars"
    calls = []

    def fail(draft: Path) -> None:
        (draft / "half").touch()
        raise OSError("the network is gone")

    def fill(draft: Path) -> None:
        calls.append(draft)
        (draft / "whole").touch()

    with pytest.raises(OSError, match="network"):
        directory_made_once(wanted, fail)
    assert [entry.name for entry in wanted.parent.iterdir()] == ["jars.lock"]
    killed = wanted.with_name("jars.draft-of-a-killed-process")
    killed.mkdir()
    for _ in range(2):
        assert directory_made_once(wanted, fill) == wanted
    assert len(calls) == 1
    assert not killed.exists()
    assert [entry.name for entry in wanted.iterdir()] == ["whole"]
