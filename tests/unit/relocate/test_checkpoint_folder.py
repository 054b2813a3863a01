"""A relocated checkpoint beside the old one, made of what real queries left in ``checkpoints``."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mm2py.errors import ConfigError
from mm2py.relocate import checkpoint_folder
from mm2py.relocate.checkpoint_folder import CheckpointChanged, SparkCheckpoint, read_checkpoint, write_relocated
from mm2py.relocate.spark_layout import PlannedBatch, SourceFormat, SourcePosition
from tests.unit.relocate.test_spark_layout import CHECKPOINTS

THERE = SourcePosition(SourceFormat.KAFKA, "", {"A.orders": {0: 7, 1: 9}})


def content_of(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=["mm2py", "kafka"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(CHECKPOINTS / request.param, tmp_path / "orders"))


def moved(checkpoint: SparkCheckpoint) -> list[PlannedBatch]:
    return [replace(one, sources=(THERE,)) for one in checkpoint.content.values()]


def test_the_copy_has_new_offsets_the_batches_that_spark_needs_and_everything_else_as_it_is(old: Path) -> None:
    before = content_of(old)
    checkpoint = read_checkpoint(old)
    new = old.with_name("orders-B")
    write_relocated(checkpoint, new, moved(checkpoint), "B")
    found = content_of(new)
    assert content_of(old) == before
    assert {name for name in found if name.startswith("offsets/")} == {"offsets/1", "offsets/2"}
    assert {name for name in found if name.startswith("commits/")} == {
        *("commits/1", "commits/.1.crc", "commits/2", "commits/.2.crc"),
    }
    assert found["offsets/2"].decode() == moved(checkpoint)[-1].text()
    rest = {name for name in before if not name.startswith(("offsets/", "commits/"))}
    assert {"metadata", ".metadata.crc", "state/0/0/3.delta", "state/0/0/.3.delta.crc"} <= rest
    assert {name: found[name] for name in found if not name.startswith("offsets/") and name in before} == {
        name: before[name] for name in before if name in rest or (name in found and name.startswith("commits/"))
    }
    assert read_checkpoint(new).cluster == "B" and not checkpoint.cluster
    assert sorted(path.name for path in old.parent.iterdir()) == ["orders", "orders-B"]


def test_a_planned_batch_stays_planned(old: Path) -> None:
    (old / "commits" / "2").unlink()
    checkpoint = read_checkpoint(old)
    assert checkpoint.batches.counted == (1, 2)
    new = old.with_name("orders-B")
    write_relocated(checkpoint, new, moved(checkpoint), "B")
    assert read_checkpoint(new).batches == checkpoint.batches


def test_a_query_that_goes_on_while_its_checkpoint_is_copied_leaves_no_copy(old: Path) -> None:
    checkpoint = read_checkpoint(old)
    (old / "offsets" / "3").write_text("v1\n{}\n-")
    with pytest.raises(CheckpointChanged, match="has changed since it was read"):
        write_relocated(checkpoint, old.with_name("orders-B"), moved(checkpoint), "B")
    assert [path.name for path in old.parent.iterdir()] == ["orders"]


def test_a_disk_that_refuses_leaves_no_copy(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_folder.shutil, "copytree", full)
    checkpoint = read_checkpoint(old)
    with pytest.raises(ConfigError, match=r"cannot be written: .*No space left"):
        write_relocated(checkpoint, old.with_name("orders-B"), moved(checkpoint), "B")
    assert [path.name for path in old.parent.iterdir()] == ["orders"]


def test_a_folder_that_exists_is_never_written_to(old: Path) -> None:
    checkpoint = read_checkpoint(old)
    new = old.with_name("orders-B")
    new.mkdir()
    with pytest.raises(ConfigError, match="orders-B exists"):
        write_relocated(checkpoint, new, moved(checkpoint), "B")
    assert list(new.iterdir()) == []
    with pytest.raises(ConfigError, match="is no folder"):
        write_relocated(checkpoint, old.with_name("none") / "orders-B", moved(checkpoint), "B")
    for inside in (old, old / "orders-B", old.parent / "orders" / "state" / "new"):
        with pytest.raises(ConfigError, match="is inside the checkpoint"):
            write_relocated(checkpoint, inside, moved(checkpoint), "B")


def test_what_is_no_checkpoint_of_this_machine_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder offsets"):
        read_checkpoint(tmp_path)
    with pytest.raises(ConfigError, match="s3a:/bucket/orders is no checkpoint of Spark on this machine"):
        read_checkpoint(Path("s3a://bucket/orders"))
