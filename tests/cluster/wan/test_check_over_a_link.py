"""``mm2py check`` beside the target of a long link: how far the source is, and what its socket buffers cost."""

from __future__ import annotations

from tests.cluster.running import Mm2py, one_way_properties
from tests.cluster.wan.far import Far


def test_a_far_source_and_what_its_socket_buffers_cost(far: Far) -> None:
    run = Mm2py(one_way_properties(far.source, far.target, **{"config.storage.replication.factor": 1}))
    with far.rig.target.entered():
        code, body = run.check("--pre")
    assert code == 0, body
    far_away = [one for one in body["results"] if one["code"] == "MM0901" and one["subject"] == "A"]
    assert [one["state"] for one in far_away] == ["ok"], body
    assert "ms: it is far" in far_away[0]["sentence"]
    (buffers,) = [one for one in body["results"] if one["code"] == "MM0902"]
    assert (buffers["subject"], buffers["state"]) == ("A", "warning")
    assert "socket.send.buffer.bytes of A is 102,400: one connection carries 1." in buffers["sentence"]
    assert buffers["hint"].startswith("Set socket.send.buffer.bytes=-1")


def test_a_far_target(far: Far) -> None:
    run = Mm2py(one_way_properties(far.source, far.target, **{"config.storage.replication.factor": 1}))
    with far.rig.source.entered():
        code, body = run.check("--pre")
    assert code == 0, "warnings do not fail"
    far_away = [one for one in body["results"] if (one["code"], one["subject"]) == ("MM0901", "B")]
    assert [one["state"] for one in far_away] == ["warning"], body
    assert far_away[0]["hint"].startswith("Run the workers beside B")
    (buffers,) = [one for one in body["results"] if one["code"] == "MM0902"]
    assert "socket.receive.buffer.bytes of B is" in buffers["sentence"]
