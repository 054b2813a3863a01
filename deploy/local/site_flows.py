"""Which topics the flows of ``deploy/sites/mm2.properties`` copy, if each cluster has one topic of its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.flow import ClusterAlias, Flow

SITES: Final = ("west", "east", "north")
OWN: Final = {1: "orders", 2: "clicks"}
"""The topic that clients write on the first and on the second cluster of each site."""


def cluster_of(site: str, number: int) -> ClusterAlias:
    return ClusterAlias(f"{site}-{number}")


def clusters_of(site: str) -> list[ClusterAlias]:
    return [cluster_of(site, number) for number in OWN]


def site_of(cluster: str) -> str:
    return cluster.rpartition("-")[0]


def own_topic(cluster: str) -> str:
    """Return the topic that clients write on a cluster."""
    return OWN[int(cluster.rpartition("-")[2])]


CLUSTERS: Final = tuple(alias for site in SITES for alias in clusters_of(site))


def _flows() -> Sequence[Flow]:
    to_first = [Flow(cluster_of(site, 2), cluster_of(site, 1)) for site in SITES]
    between = [Flow(cluster_of(one, 1), cluster_of(other, 1)) for one in SITES for other in SITES if one != other]
    to_second = [Flow(cluster_of(site, 1), cluster_of(site, 2)) for site in SITES]
    return [*to_first, *between, *to_second]


FLOWS: Final = _flows()
"""In the order in which a record passes them."""


def copies_of(flow: Flow, sites: Sequence[str] = SITES) -> Mapping[str, str]:
    """Return the topics that a flow copies, with the names of their copies, if only these sites are there."""
    own = site_of(flow.source)
    if own != site_of(flow.target):
        topics = [*_sent_by(own)]
    else:
        topics = [own_topic(flow.source)]
        if flow.source == cluster_of(own, 1):
            others = [site for site in sites if site != own]
            topics += [f"{cluster_of(site, 1)}.{topic}" for site in others for topic in _sent_by(site)]
    return {topic: f"{flow.source}.{topic}" for topic in topics}


def _sent_by(site: str) -> Sequence[str]:
    """Return the topics of a site's first cluster that the other sites copy."""
    second = cluster_of(site, 2)
    return [own_topic(cluster_of(site, 1)), f"{second}.{own_topic(second)}"]
