"""A broker's answers to changes of topic settings, and to requests about the ACLs of topics.

Source: ConfigurationControlManager, AclControlManager, AclApis, Apache Kafka 4.3.
"""

from __future__ import annotations

import datetime
from typing import Final

from kio.schema.create_acls.v2.response import AclCreationResult
from kio.schema.describe_acls.v2.response import AclDescription, DescribeAclsResource
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.response import AlterConfigsResourceResponse
from kio.static.primitive import i8, i32Timedelta

from mm2py.kafka.messages import (
    AclCreation,
    AlterConfigsResource,
    CreateAclsRequest,
    CreateAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from mm2py.topics.acls import TopicAcl
from tests.fakes.broker.cluster_state import ClusterState
from tests.fakes.broker.topic_config import BadConfig, parse_topic_config

_NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))
_TOPIC_RESOURCE: Final = 2
_ANY: Final = 1
_SET: Final = 0
_DELETE: Final = 1
_PATTERNS: Final = range(1, 5)
_OPERATIONS: Final = range(1, 16)
_PERMISSIONS: Final = range(1, 4)
_FIRST_REAL_PATTERN: Final = 3


def incremental_alter_configs(
    state: ClusterState, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time=_NO_THROTTLE,
        responses=tuple(
            _altered(state, resource, validate_only=request.validate_only) for resource in request.resources
        ),
    )


def _altered(
    state: ClusterState, resource: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    assert resource.resource_type == _TOPIC_RESOURCE, "the model changes the settings of topics only"
    code, message = _change(state, resource, validate_only=validate_only)
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _change(
    state: ClusterState, resource: AlterConfigsResource, *, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    name = resource.resource_name
    names = [config.name for config in resource.configs]
    if name in state.denied_topics or name in state.denied_configs:
        return ErrorCode.topic_authorization_failed, "Topic authorization failed."
    if len(set(names)) < len(names):
        return ErrorCode.invalid_request, "Error due to duplicate config keys"
    if any(config.config_operation == _SET and config.value is None for config in resource.configs):
        return ErrorCode.invalid_request, "Null value not supported for : " + ",".join(names)
    topic = state.topics.get(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist."
    overrides = dict(topic.overrides)
    for config in resource.configs:
        assert config.config_operation in {_SET, _DELETE}, "the model knows SET and DELETE"
        if config.config_operation == _DELETE:
            overrides.pop(config.name, None)
        elif config.value is not None:
            overrides[config.name] = config.value
    unknown = state.unknown_configs & overrides.keys()
    if unknown:
        return ErrorCode.invalid_config, f"Unknown topic config name: {min(unknown)}"
    try:
        parse_topic_config(overrides)
    except BadConfig as cause:
        return ErrorCode.invalid_config, str(cause)
    if not validate_only:
        state.replace_overrides(name, overrides)
    return ErrorCode.none, None


def describe_acls(state: ClusterState, request: DescribeAclsRequest) -> DescribeAclsResponse:
    code, message = ErrorCode.none, None
    if state.acls is None:
        code, message = ErrorCode.security_disabled, "No Authorizer is configured."
    elif "DESCRIBE" in state.denied_on_cluster:
        code, message = ErrorCode.cluster_authorization_failed, "Request is not authorized."
    assert request.resource_type_filter == _TOPIC_RESOURCE, "the model has ACLs of topics only"
    wanted = (
        *(request.resource_name_filter, request.principal_filter, request.host_filter),
        *(request.pattern_type_filter, request.operation, request.permission_type),
    )
    assert wanted == (None, None, None, _ANY, _ANY, _ANY), "the model lists all ACLs of topics or none"
    by_resource: dict[tuple[str, int], list[TopicAcl]] = {}
    for acl in sorted(state.acls or ()) if not code else ():
        by_resource.setdefault((acl.name, acl.pattern), []).append(acl)
    return DescribeAclsResponse(
        throttle_time=_NO_THROTTLE,
        error_code=code,
        error_message=message,
        resources=tuple(
            DescribeAclsResource(
                resource_type=i8(_TOPIC_RESOURCE),
                resource_name=name,
                pattern_type=i8(pattern),
                acls=tuple(
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=i8(acl.operation),
                        permission_type=i8(acl.permission),
                    )
                    for acl in acls
                ),
            )
            for (name, pattern), acls in by_resource.items()
        ),
    )


def create_acls(state: ClusterState, request: CreateAclsRequest) -> CreateAclsResponse:
    return CreateAclsResponse(
        throttle_time=_NO_THROTTLE, results=tuple(_created(state, wanted) for wanted in request.creations)
    )


def _created(state: ClusterState, wanted: AclCreation) -> AclCreationResult:
    code, message = ErrorCode.none, None
    if state.acls is None:
        code, message = ErrorCode.security_disabled, "No Authorizer is configured."
    elif "ALTER" in state.denied_on_cluster:
        code, message = ErrorCode.cluster_authorization_failed, "Request is not authorized."
    elif (code := _judge(wanted)) is ErrorCode.none:
        state.acls.add(
            TopicAcl(
                wanted.resource_name,
                int(wanted.resource_pattern_type),
                wanted.principal,
                wanted.host,
                int(wanted.operation),
                int(wanted.permission_type),
            )
        )
    return AclCreationResult(error_code=code, error_message=message)


def _judge(wanted: AclCreation) -> ErrorCode:
    """Return the error for unknown codes, and for wildcards that only filters may have. A topic takes any operation."""
    assert wanted.resource_type == _TOPIC_RESOURCE, "the model has ACLs of topics only"
    unknown = (
        wanted.resource_pattern_type not in _PATTERNS
        or wanted.operation not in _OPERATIONS
        or wanted.permission_type not in _PERMISSIONS
    )
    if unknown or ":" not in wanted.principal:
        return ErrorCode.invalid_request
    wildcard = wanted.resource_pattern_type < _FIRST_REAL_PATTERN or _ANY in {wanted.operation, wanted.permission_type}
    return ErrorCode.unknown_server_error if wildcard else ErrorCode.none
