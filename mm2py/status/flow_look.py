"""One look at a flow from its two clusters, for who needs to know its topics once. It asks no worker."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from mm2py.clock import SystemClock
from mm2py.config.configuration import read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow_clusters import connect
from mm2py.status.cluster_inquiry import patience_of_commands
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport
from mm2py.status.inquiry import Inquiry
from mm2py.status.report import Report, report_of


class FlowLook(NamedTuple):
    """What one look has found out about a flow."""

    facts: FlowFacts
    flow: FlowReport
    report: Report
    """The report of all flows into its target."""


async def look_at_flow(command: str, path: Path, settings: FlowSettings, *, settles: bool) -> FlowLook:
    """Look at a flow once.

    Args:
        command: becomes part of the client id, if the file sets none.
        settles: see ``Inquiry``: it takes longer if something seems to stand still.
    Raises:
        ConfigError: the flow does not run.
    """
    clock = SystemClock()
    inquiry = Inquiry(
        read_settings_file(path, [settings.flow.target]),
        lambda flow, cluster, timeout_s, rng: connect(command, flow, cluster, timeout_s=timeout_s, rng=rng),
        clock=clock,
        rng=random.Random(),  # noqa: S311  (spreads retries; nothing secret)
        patience=patience_of_commands(clock),
        settles=settles,
    )
    try:
        facts = await inquiry.look()
    finally:
        await inquiry.close()
    report = report_of(facts)
    flow = next((one for one in report.flows if one.flow == settings.flow), None)
    its_facts = next((one for one in facts.flows if one.settings.flow == settings.flow), None)
    if flow is None or its_facts is None:
        why = facts.refused.get(settings.flow, "The file does not enable it.")
        raise ConfigError(f"Flow {settings.flow} does not run: {why}", remedy="See mm2py status FILE.")
    return FlowLook(its_facts, flow, report)
