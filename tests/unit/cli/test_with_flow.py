"""Commands that only ask reach a flow that its file switches off: the ledger of the other direction is needed then."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file, with_flow
from mm2py.errors import ConfigError

FILE = """clusters=A,B
A.bootstrap.servers=a:1
B.bootstrap.servers=b:1
B->A.enabled=true
replication.policy.class=IdentityReplicationPolicy
"""


def read(path: Path, more: str) -> SettingsFile:
    path.write_text(f"{FILE}{more}\n")
    return read_settings_file(path, None)


@pytest.mark.parametrize("more", ["A->B.enabled=false", "A->B.sync.topic.acls.enabled=false", ""])
def test_a_file_that_enables_only_the_way_back_still_tells_of_the_other_direction(more: str, tmp_path: Path) -> None:
    """B took over from A under the identity policy. With both directions enabled, the file would be a ring."""
    file = read(tmp_path / "mm2.properties", more)
    with pytest.raises(ConfigError, match="enables no flow A->B"):
        flow_of(file, "A->B")
    assert str(flow_of(with_flow(file, "A->B"), "A->B").flow) == "A->B"


def test_a_flow_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    """``A->C`` was a slip for ``B->A``, and the only advice was to enable it."""
    with pytest.raises(ConfigError, match=r"enables no flow A->C, only B->A\. Name one of these, or set A->C\.enabled"):
        flow_of(read(tmp_path / "mm2.properties", ""), "A->C")


def test_a_flow_that_the_file_enables_or_refuses_is_told_by_the_file_as_it_is(tmp_path: Path) -> None:
    file = read(tmp_path / "mm2.properties", "")
    assert with_flow(file, "B->A") is file
    ring = read(tmp_path / "mm2.properties", "A->B.enabled=true")
    assert with_flow(ring, "A->B") is ring


def test_a_flow_between_clusters_that_the_file_does_not_name_is_none(tmp_path: Path) -> None:
    file = read(tmp_path / "mm2.properties", "")
    with pytest.raises(ConfigError):
        flow_of(with_flow(file, "A->C"), "A->C")
