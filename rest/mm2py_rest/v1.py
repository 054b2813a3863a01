"""What only the routes under ``/v1`` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mm2py.config.configuration import SettingsFile
from mm2py.config.properties import Properties
from mm2py.flow import Flow
from mm2py_rest.clusters.answers import Answers
from mm2py_rest.clusters.questions import FlowQuestions
from mm2py_rest.events.feed import EventFeed
from mm2py_rest.history.log import HistoryLog
from mm2py_rest.recovery.jobs import RecoveryJobs


@dataclass(frozen=True, slots=True)
class V1:
    """See ``Services``."""

    file: SettingsFile = field(default_factory=lambda: SettingsFile(Path(), Properties({}), ()))
    questions: Mapping[Flow, FlowQuestions] = field(default_factory=dict)
    events: EventFeed = field(default_factory=EventFeed)
    histories: Mapping[Flow, HistoryLog] = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)
    recoveries: RecoveryJobs = field(default_factory=RecoveryJobs)
    worker: str = ""
    """The name of this process's worker, as the members of its groups see it."""
