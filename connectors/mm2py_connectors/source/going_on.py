"""Words the requests by which an operator lets a flow continue after what a remote topic already contains. Pure.

MirrorMaker 2 copies everything once more where it finds no position. A remote topic may hold records that are nowhere
else. So no remedy here deletes records, and copying again is never the first remedy. docs/offsets.md explains the
steps.
"""

from __future__ import annotations

import json

from mm2py.command_lines import FILE, OTHER_FILE
from mm2py.flow import Flow, Kind

DOCS = "docs/offsets.md, 'Going on behind what is there'"


def requests(flow: Flow, topic: str, partition: int, next_offset: int | None = None) -> str:
    """Return the requests that set where a partition continues.

    Args:
        next_offset: the source offset where it must continue; None: the operator finds the offset, and writes it for N.
    """
    offset: dict[str, object] | None = {"offset": "N"}
    if next_offset is not None:
        offset = {"offset": next_offset - 1} if next_offset else None  # as in Connect: the last record's
    entry = {"partition": {"cluster": flow.source, "topic": topic, "partition": partition}, "offset": offset}
    body = json.dumps({"offsets": [entry]}, separators=(",", ":")).replace('"offset":"N"', '"offset":N')
    connector = f"/connectors/{flow}.{Kind.SOURCE}"
    return f"PUT {connector}/stop, PATCH {connector}/offsets with {body}, PUT {connector}/resume"


def file_that_knows(flow: Flow, other: Flow) -> str:
    """Return the file for a command about ``other``: the file of ``flow`` if it has both clusters by these names."""
    return FILE if {other.source, other.target} == {flow.source, flow.target} else OTHER_FILE


def behind_what_is_there(
    flow: Flow, topic: str, remote: str, partition: int, target_end: int | None = None, *, came_by: Flow | None = None
) -> str:
    """Return how to continue after the records of a remote topic for which no position is stored.

    Args:
        partition: one of the partitions; the others are done likewise.
        target_end: where its remote partition ends; None: the operator finds the offset, and the text says END.
        came_by: the flow that has copied the records from ``remote`` to the source, if it is known.
    """
    # If both sides have one name, a reverse flow may have copied the records to the source: its ledger has the offsets.
    is_same = remote == topic
    reverse = Flow(flow.target, flow.source)
    asked = f"{file_that_knows(flow, came_by or reverse)} '{came_by or reverse}'" if is_same else f"{FILE} '{flow}'"
    back = "" if is_same else " --reverse"
    end = "END" if target_end is None else target_end
    return (
        f"Go on behind what is there: {requests(flow, topic, partition)}; likewise for each partition. Then mm2py"
        f" rebuild-ledger {FILE} '{flow}' --topic {topic}. N is the offset of the last record on {flow.source} that is"
        f" there: one less than what mm2py translate {asked} --topic {topic} --partition {partition} --offset"
        f" {end}{back} answers, or as GET /connectors/NAME/offsets says at the Kafka Connect that has copied it."
        f" See {DOCS}."
    )
