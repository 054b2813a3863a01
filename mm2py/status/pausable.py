"""Whether a flow has a topic or a partition of a name that an operator wants to pause. Pure.

A name with a slip would pause nothing, and the operator would believe that it had. So it is refused, also if the topic
may be created later.
"""

from __future__ import annotations

import difflib
from typing import Final

from mm2py.records.pause_record import PausedPart
from mm2py.secret import shown_name
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport, left_out_of

NEAR_MOST: Final = 3
"""How many names that may be meant are shown."""


def why_not_pausable(facts: FlowFacts, report: FlowReport, part: PausedPart) -> str:
    """Return why a topic or a partition cannot be paused, with names that may be meant; empty if it can."""
    topic, partition = part
    found = next((one for one in report.topics if one.topic == topic), None)
    source = report.flow.source
    if found is None:
        if topic in facts.left_out:
            return f"{report.flow} does not copy {topic}: {left_out_of(facts, topic)[1]}"
        near = difflib.get_close_matches(topic, [one.topic for one in report.topics], NEAR_MOST)
        if facts.source_unread:
            more = facts.source_unread[0]
        elif near:
            more = f"Do you mean {', '.join(near)}?"
        else:
            more = f"{source} shows no topic of this name: it does not exist, or DESCRIBE is missing."
        return f"{report.flow} copies no topic {shown_name(topic)}. {more}"
    if partition is not None and found.partitions and partition >= found.partitions:
        count = f"{found.partitions} partition{'' if found.partitions == 1 else 's'}"
        return f"{source} has {count} of {topic}, numbered from 0."
    return ""
