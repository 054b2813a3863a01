"""The two clusters of a recovery, with the settings of the flows between them. Pure but for the brokers it holds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.dr.fence.raising import Hook
from mm2py.dr.fence.record import FenceWay
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.port import Brokers
from mm2py.records.author import Author

MAX_LAG: int = 100_000
TIMEOUT_S: int = 300


class CutoverRefused(Mm2Error):
    """A precondition does not hold. Nothing was changed by this step."""


@dataclass(frozen=True, slots=True)
class CutoverOptions:
    """What an operator asks for, beside the flow."""

    topics: tuple[str, ...] = ()
    """None: all that the flow copies from producers."""
    groups: tuple[str, ...] = ()
    """Only these move; none: all that the flow's settings let pass."""
    left_groups: tuple[str, ...] = ()
    left_topics: tuple[str, ...] = ()
    """Topics in which groups stay where they are."""
    timeout_s: float = TIMEOUT_S
    """From the fence to the switch: then all is taken back."""
    max_lag: int = MAX_LAG
    """It does not begin while more records are not copied."""
    postponed_by: str = ""
    """While this file is there, a run that is ready for the switch waits; empty: it does not."""
    switch_words: tuple[str, ...] = ()
    """The command that sends clients to the other cluster; none: an operator does it."""
    window_s: int | None = None
    way: FenceWay = FenceWay.ACLS
    fence_hook: Hook | None = None
    fence_hook_name: str = ""
    principals: tuple[str, ...] = ()
    accepts_unproven: bool = False
    accepts_coupled: bool = False
    """Topics move although transactions couple them with others that do not."""
    ends_hanging: bool = False
    """Transactions that are open on the fenced topics are aborted."""
    leaves_extras: bool = False


def renames_told(flows: Iterable[FlowSettings]) -> str:
    """Return why no run may lead from one cluster to the other and back: a flow gives topics other names; empty: none
    does. The flow back would have to give them their old names, and nothing makes sure that it does."""
    found = [str(one.flow) for one in flows if one.policy.renames]
    return f"{' and '.join(found)} has topics.rename: applications would find other names" if found else ""


RENAMES_REMEDY: Final = (
    "Move each application by hand, with the new names of its topics: its groups have their offsets on the target"
    " already (mm2py groups). See docs/names.md."
)


def turned(flow: Flow) -> Flow:
    """Return the flow that leads back."""
    return Flow(flow.target, flow.source)


@dataclass(frozen=True, slots=True)
class RecoveryPair:
    """Both clusters, both flows, and who asks."""

    file: SettingsFile
    by_file: Mapping[Flow, FlowSettings]
    """Of both directions, by the file."""
    settings: Mapping[Flow, FlowSettings]
    """Of both directions, by which workers run them."""
    brokers: Mapping[ClusterAlias, Brokers]
    own_principals: Mapping[ClusterAlias, frozenset[str]]
    """Under which names each cluster knows mm2py: they stay free."""
    author: Author
    command: str
    clock: Clock
    rng: random.Random = field(repr=False)

    @property
    def by(self) -> str:
        """Who asks, in words."""
        return self.author.by_command(self.command)

    def keeps_names(self, flow: Flow) -> bool:
        """Whether copies have the names of their originals: then only one direction may be on."""
        return self.settings[flow].policy.keeps_names
