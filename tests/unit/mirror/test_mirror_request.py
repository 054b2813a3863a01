"""``mm2py mirror``: what its options and the files of clients ask for, and the settings file that does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mm2py.cli.mirror import run
from mm2py.config.configuration import read_settings_file
from mm2py.config.properties import read_properties
from mm2py.config.settings import Configuration
from mm2py.errors import ConfigError
from mm2py.mirror.client_file import ClientFile, ClientRole, read_client_file
from mm2py.mirror.properties_text import properties_text
from mm2py.mirror.request import MirrorArguments, MirrorRequest, read_request

OLD, NEW, THIRD = "old-1:9092", "new-1:9092", "other:9092"


def request(**given: Any) -> MirrorRequest:
    return read_request(MirrorArguments(**{"sources": [OLD], "target": NEW, "topics": "orders.*", **given}))


def configuration(folder: Path, found: MirrorRequest) -> Configuration:
    path = folder / "mirror.properties"
    path.write_text(properties_text(found))
    return read_settings_file(path, None).configuration()


def client(folder: Path, text: str, role: ClientRole = ClientRole.CONSUMER) -> ClientFile:
    path = folder / "client.properties"
    path.write_text(text)
    return read_client_file(read_properties(path).entries, "client.properties", role)


def test_one_source_keeps_the_names_of_its_topics_and_is_only_read(tmp_path: Path) -> None:
    found = configuration(tmp_path, request())
    (flow,) = found.flows
    assert not found.warnings
    assert (str(flow.flow), flow.source.bootstrap_servers) == ("old-1-9092->target", (("old-1", 9092),))
    assert flow.remote_topic("orders") == "orders"
    assert [flow.replicates(name) for name in ("orders", "orders-eu", "other", "__consumer_offsets")] == [
        True,
        True,
        False,
        False,
    ]
    assert flow.heartbeats_interval_s is None
    assert flow.sync_topic_acls_interval_s is None


def test_several_sources_have_a_prefix_each(tmp_path: Path) -> None:
    found = configuration(tmp_path, request(sources=[OLD, THIRD], prefixes=["dc1_", "dc2_"]))
    assert [one.remote_topic("orders") for one in found.flows] == ["dc1_orders", "dc2_orders"]
    assert len({one.group for one in found.flows}) == 1
    dotted = configuration(tmp_path, request(prefixes=["dc1"]))
    assert [one.remote_topic("orders") for one in dotted.flows] == ["dc1.orders"]


def test_a_blacklist_mirrors_everything_else(tmp_path: Path) -> None:
    (flow,) = configuration(tmp_path, request(topics=None, blacklist="secret.*, tmp")).flows
    names = ("orders", "secret-1", "tmp", "mm2-offsets.x.internal", "__transaction_state")
    assert [flow.replicates(name) for name in names] == [True, False, False, False, False]


def test_the_same_brokers_in_another_order_are_the_same_source() -> None:
    one, other = request(sources=["b:1, a:1"]), request(sources=["a:1,b:1"])
    assert one.sources[0].alias == other.sources[0].alias == "a-1"


def test_a_consumers_file_brings_brokers_credentials_and_where_to_begin(tmp_path: Path) -> None:
    text = (
        "bootstrap.servers=old-1:9092\ngroup.id=old-mirror\nauto.offset.reset=smallest\nsecurity.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\nfetch.max.bytes=1000000\nenable.auto.commit=true\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="u" password="p\\\\w";\n'
    )
    found = request(sources=[], source_files=[client(tmp_path, text)])
    assert found.sources[0].bootstrap == OLD
    assert "Means nothing here: enable.auto.commit." in found.notes
    (flow,) = configuration(tmp_path, found).flows
    assert flow.starting_offsets_group == "old-mirror"
    assert (flow.fetch_max_bytes, flow.auto_offset_reset) == (1_000_000, "earliest")
    assert "p\\w" not in repr(found)
    assert request(sources=[], source_files=[client(tmp_path, text)], group="").sources[0].group == ""


def test_files_of_the_oldest_clients_are_read_and_zookeeper_is_refused(tmp_path: Path) -> None:
    producer = client(tmp_path, "metadata.broker.list=new-1:9092\ncompression.codec=gzip\n", ClientRole.PRODUCER)
    assert request(target="", target_file=producer).target == NEW
    assert dict(producer.settings) == {"producer.compression.type": "gzip"}
    with pytest.raises(
        ConfigError, match=r"line 2: zookeeper\.connect is refused: clusters are reached by their brokers"
    ):
        client(tmp_path, "group.id=g\nzookeeper.connect=zk:2181\n")


def test_options_of_older_mirrors_say_what_they_mean_here() -> None:
    notes = request(old={"num.streams": "4", "preserve.order": "true", "abort.on.send.failure": "TRUE"}).notes
    assert [note.split(":")[0] for note in notes] == [
        "--num.streams means nothing here",
        "--preserve.order is always so",
        "--abort.on.send.failure is always so",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topics": None}, "Neither topics nor a blacklist is given"),
        ({"blacklist": "x"}, "Topics and a blacklist are given"),
        ({"topics": None, "blacklist": "x", "exclude": "y"}, "--blacklist and --exclude are given"),
        ({"topics": " "}, "The regular expression of topics is empty"),
        ({"sources": []}, "There is no source"),
        ({"target": ""}, "There is no target"),
        ({"target": "OLD-1:9092"}, "old-1:9092 is source and target"),
        ({"sources": [OLD, THIRD]}, "topics of the same name would mix"),
        ({"sources": [OLD, THIRD], "prefixes": ["a"]}, "There are 2 sources and 1 prefixes"),
        ({"sources": [OLD, THIRD], "prefixes": ["a.", "b_"]}, "The prefixes end in different characters"),
        ({"sources": [OLD, THIRD], "prefixes": ["a", "a"]}, "Two prefixes are 'a'"),
        ({"sources": [OLD, "OLD-1:9092"], "prefixes": ["a", "b"]}, "Two sources name the same brokers"),
        ({"prefixes": ["a b"]}, "The prefix 'a b' cannot be used"),
        ({"prefixes": ["target"]}, "The prefix 'target' cannot be used"),
        ({"prefixes": [""]}, "The prefix '' cannot be used"),
        ({"prefixes": ["a"], "identity": True}, "--identity and --prefix are given"),
        ({"old": {"message.handler": "X"}}, "--message.handler is refused"),
        ({"old": {"abort.on.send.failure": "false"}}, "This cannot be switched off"),
        ({"old": {"preserve.order": "false"}}, "--preserve.order false is refused"),
        (
            {"source_files": [ClientFile("x:1", "", {}, ()), ClientFile("y:1", "", {}, ())]},
            "There are 1 sources and 2 client files",
        ),
        (
            {"source_files": [ClientFile("x:1", "", {}, ())]},
            "--from and bootstrap.servers of the consumer's file differ",
        ),
        ({"sources": [], "source_files": [ClientFile("", "", {}, ())]}, "A client file of a source names no brokers"),
    ],
)
def test_what_cannot_be_is_refused_with_its_way_out(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        request(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", OLD, "--to", NEW, "--topics", "("], r"^The options cannot be used: topics: pattern '\('"),
        (["--from", "nowhere", "--to", NEW, "--topics", "x"], r"^The options cannot be used: nowhere\.bootstrap"),
    ],
)
def test_what_settings_refuse_names_no_file_that_is_gone(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(options)
