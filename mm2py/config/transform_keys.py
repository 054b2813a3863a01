"""The rows of transforms, and why settings of transforms refuse a flow. ``mm2py/transforms/`` says what they do.

They are read from each worker's own file and are not shared: they may name a module on its disk. A digest of them in
each position shows when the previous owner had others.

Counterpart: the settings of transformations and predicates in Connect's ``ConnectorConfig``.
"""

from __future__ import annotations

from typing import Final

from mm2py.config.kinds import string, strings
from mm2py.config.layers import Layer, origin
from mm2py.config.regex_router import ROUTERS, router_refusal
from mm2py.config.row import BY_CONNECTOR, BY_FLOW_FAMILY, Key, Section
from mm2py.transforms.chain import TransformChain
from mm2py.transforms.reading import TransformsUnusable, read_chain

TRANSFORMING = Section(
    "transforms",
    (
        "What is done to each record on its way, as with MirrorMaker 2. A topic with transforms is copied record by"
        " record, so it takes far more CPU. [docs/transforms.md](transforms.md) has the classes, and how to test them."
    ),
)
TRANSFORMS: Key[tuple[str, ...]] = TRANSFORMING.row(
    "transforms",
    strings,
    (),
    readers=BY_CONNECTOR,
    lines=("##A->B.transforms = site",),
    text=(
        "The transforms of a flow by names of your own, in order. Each worker takes them from its own file: give all"
        " workers of a flow the same."
    ),
)
TRANSFORM_SETTINGS: Key[str | None] = TRANSFORMING.row(
    "transforms.",
    string,
    None,
    readers=BY_FLOW_FAMILY,
    lines=(
        "##A->B.transforms.site.type = org.apache.kafka.connect.transforms.InsertHeader",
        "##A->B.transforms.site.header = site",
        "##A->B.transforms.site.value.literal = a",
    ),
    text=(
        "What each of them does: its `type` is `InsertHeader`, `DropHeaders`, `Filter`, or `python` for a function of"
        " yours. `predicate` and `negate` say for which records."
    ),
)
PREDICATES: Key[tuple[str, ...]] = TRANSFORMING.row(
    "predicates",
    strings,
    (),
    readers=BY_CONNECTOR,
    lines=("##A->B.predicates = deleted",),
    text="The predicates that transforms name, by names of your own.",
)
PREDICATE_SETTINGS: Key[str | None] = TRANSFORMING.row(
    "predicates.",
    string,
    None,
    readers=BY_FLOW_FAMILY,
    lines=("##A->B.predicates.deleted.type = org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",),
    text="What each of them asks for: its `type` is `TopicNameMatches`, `HasHeaderKey` or `RecordIsTombstone`.",
)
FAMILIES: Final = (TRANSFORM_SETTINGS.name, PREDICATE_SETTINGS.name)


def is_of_transforms(name: str) -> bool:
    """Return whether a connector's setting is about transforms."""
    return name in (TRANSFORMS.name, PREDICATES.name) or name.startswith(FAMILIES)


def chain_in(connector: Layer) -> tuple[TransformChain | None, list[str]]:
    """Return the transforms in the settings of a connector, and why its flow must not run, a clause for each reason."""
    found = {name: one.value for name, one in connector.items() if is_of_transforms(name)}
    if not found:
        return None, []
    try:
        return read_chain(found), []
    except TransformsUnusable as error:
        if TRANSFORMS.name in connector and any(one.value.strip() in ROUTERS for one in connector.values()):
            return None, [router_refusal(connector[TRANSFORMS.name], connector)]
        return None, [_clause(connector, name, why) for name, why in error.problems]


def _clause(connector: Layer, name: str, why: str) -> str:
    if name in connector:
        return f"{origin(connector[name])} {why}"
    lists = name.partition(".")[0]
    return f"{origin(connector[lists])} cannot be used: {name} {why}" if lists in connector else f"{name} {why}"
