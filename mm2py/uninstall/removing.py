"""Removes what ``planned.py`` lists: the only place where mm2py deletes topics.

The order lets a removal that was killed be begun again: remote topics first, while their positions are still stored;
the topic of settings last, because it shows that the flow was ours. The ACLs of a topic go after it, because they may
be what lets us delete it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from kio.schema.types import TopicName as KioTopicName
from kio.static.primitive import i8, i32Timedelta

from mm2py.flow import ClusterAlias
from mm2py.kafka import messages
from mm2py.kafka.admin import in_chunks
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import ANY_BROKER, Brokers, ask
from mm2py.topics.acls import TopicAcl
from mm2py.uninstall.planned import LeftTopic, UninstallPlan

TIMEOUT_S: Final = 30
_TOPIC_RESOURCE: Final = 2


async def remove(plan: UninstallPlan, clusters: Mapping[ClusterAlias, Brokers], say: Callable[[str], None]) -> None:
    """Carry out a plan. What is gone already is no error.

    Args:
        say: gets a line for each thing that is removed.
    Raises:
        BrokerRefused: a right is missing. What was removed until then stays removed; the call may be repeated.
        KafkaError: a cluster does not answer.
    """
    *earlier, last = plan.topics or (None,)
    for place in (*plan.remote_topics, *earlier):
        if place is not None:
            await _remove_topic(place, clusters, say)
    at_last = [one for one in plan.acls if last is not None and (one[0], one[1].name) == last]
    await _remove_acls([one for one in plan.acls if one not in at_last], clusters, say)
    if last is not None:
        await _remove_topic(last, clusters, say)
    await _remove_acls(at_last, clusters, say)


async def _remove_topic(place: LeftTopic, clusters: Mapping[ClusterAlias, Brokers], say: Callable[[str], None]) -> None:
    request = messages.DeleteTopicsRequest(
        topics=(messages.DeleteTopicState(name=KioTopicName(place.name), topic_id=None),),
        timeout=i32Timedelta.parse(timedelta(seconds=TIMEOUT_S)),
    )
    reply = await ask(clusters[place.cluster], ANY_BROKER, request, messages.DeleteTopicsResponse)
    for answer in reply.responses:
        code = int(answer.error_code)
        if code not in {0, UNKNOWN_TOPIC_OR_PARTITION}:
            raise BrokerRefused(f"Deleting topic {place.name} on {place.cluster}", code, message=answer.error_message)
    say(f"{place.cluster}: topic {place.name} is deleted.")


async def _remove_acls(
    acls: Sequence[tuple[ClusterAlias, TopicAcl]], clusters: Mapping[ClusterAlias, Brokers], say: Callable[[str], None]
) -> None:
    for cluster in dict.fromkeys(alias for alias, _ in acls):
        for some in in_chunks([acl for alias, acl in acls if alias == cluster]):
            await _delete_acls(some, clusters[cluster])
            for acl in some:
                say(f"{cluster}: ACL {acl} is deleted.")


async def _delete_acls(acls: Sequence[TopicAcl], brokers: Brokers) -> None:
    request = messages.DeleteAclsRequest(
        filters=tuple(
            messages.DeleteAclsFilter(
                resource_type_filter=i8(_TOPIC_RESOURCE),
                resource_name_filter=acl.name,
                pattern_type_filter=i8(acl.pattern),
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=i8(acl.operation),
                permission_type=i8(acl.permission),
            )
            for acl in acls
        )
    )
    reply = await ask(brokers, ANY_BROKER, request, messages.DeleteAclsResponse)
    for acl, result in zip(acls, reply.filter_results, strict=True):
        answers = [(int(result.error_code), result.error_message)]
        answers += [(int(one.error_code), one.error_message) for one in result.matching_acls]
        for code, message in answers:
            if code:
                raise BrokerRefused(f"Deleting the ACL {acl}", code, message=message)
