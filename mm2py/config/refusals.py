"""Refusals: why an enabled flow must not run yet.

A setting that does nothing yet is only named in a warning. But where ignoring it would change what is copied, in which
form, with which guarantee or how securely, its flow is refused until it works; so is a flow that would copy in a ring.
"""

from __future__ import annotations

from mm2py.config import keys
from mm2py.config.keys import Status
from mm2py.config.kinds import java_trim
from mm2py.config.layers import FlowLayers
from mm2py.config.properties import Entry
from mm2py.config.secrets import shown_key
from mm2py.config.security_keys import SECURITY
from mm2py.errors import Mm2Error
from mm2py.flow import Flow


class FlowRefused(Mm2Error):
    """A flow is not started, because with what works today its copy would not be what the file asks for."""


def refusal_reasons(flow: Flow, layers: FlowLayers) -> list[str]:
    """Return what in the settings of a flow forbids to run it, a clause for each reason; empty if it may run."""
    reasons: list[str] = []
    for layer, table in (
        (layers.connector, {**keys.CONNECTOR, **keys.FLOW_ONLY}),
        (layers.worker, keys.WORKER),
        (layers.consumer, keys.CONSUMER),
        (layers.producer, keys.PRODUCER),
        (layers.source_admin, keys.ADMIN),
        (layers.target_admin, keys.ADMIN),
    ):
        for name, entry in layer.items():
            key = table.get(name)
            if key is None or entry.line is None or name in SECURITY:  # security.py judges those of the data's clients
                continue
            alias = {"source.cluster.alias": flow.source, "target.cluster.alias": flow.target}.get(name)
            refused = key.status is Status.REFUSED and not key.agrees(entry.value)
            if (refused and java_trim(entry.value) != alias) or key.refuses(entry.value):
                reasons.append(f"{shown_origin(entry)} does not work yet ({key.note})")
    reasons += _exactly_once_reasons(flow, layers)
    return list(dict.fromkeys(reasons))


def _exactly_once_reasons(flow: Flow, layers: FlowLayers) -> list[str]:
    """Return what contradicts itself about exactly-once: it is required and not enabled, or enabled and undone."""
    support, required = layers.worker.get(keys.EXACTLY_ONCE.name), layers.connector.get(keys.EXACTLY_ONCE_SUPPORT.name)
    isolation = layers.consumer.get(keys.ISOLATION_LEVEL.name)
    enabled = support is not None and java_trim(support.value).lower() == "enabled"
    reasons = []
    if required is not None and java_trim(required.value).lower() == "required" and not enabled:
        way_out = f"set {flow.target}.exactly.once.source.support=enabled"
        reasons.append(f"{shown_origin(required)} asks for what is not enabled ({way_out})")
    if enabled and isolation is not None and java_trim(isolation.value) == "read_uncommitted" and isolation.line:
        reasons.append(
            f"{shown_origin(isolation)} contradicts exactly.once.source.support=enabled, which copies committed records"
            " only (remove one of them)"
        )
    return reasons


def shown_origin(entry: Entry) -> str:
    return f"{shown_key(entry.key)} (line {entry.line})"
