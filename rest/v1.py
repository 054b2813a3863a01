"""What the routes under ``/v1`` share besides what all routes do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mm2py.config.configuration import SettingsFile
from mm2py.config.properties import Properties
from mm2py.connector import Flow
from rest.clusters.answers import Answers, Kept
from rest.clusters.questions import FlowQuestions
from rest.events.feed import EventFeed
from rest.reports.lag import OwnWorker
from rest.worker_link import WorkerLink, WorkerSilent

OWN_KEPT_S: Final = 10.0
"""What the worker says costs its event loop time, so it is asked no more often."""
OWN_MOST_S: Final = 1.0
"""How long an answer waits for what only the worker knows."""


@dataclass(frozen=True, slots=True)
class V1:
    """See ``Services``."""

    file: SettingsFile = field(default_factory=lambda: SettingsFile(Path(), Properties({}), ()))
    questions: Mapping[Flow, FlowQuestions] = field(default_factory=dict)
    events: EventFeed = field(default_factory=EventFeed)
    answers: Answers = field(default_factory=Answers)
    own: Kept[OwnWorker | None] | None = None
    """What the worker says of itself; None: it is not asked."""


async def ask_worker(link: WorkerLink) -> OwnWorker | None:
    """Return what the worker says of itself; None if it does not answer soon."""
    try:
        async with asyncio.timeout(OWN_MOST_S):
            return OwnWorker(await link.facts(), await link.snapshot())
    except (WorkerSilent, TimeoutError):
        return None
