"""What brokers say is told without what only their authors can read."""

from __future__ import annotations

import pytest

from mm2py.kafka.error_codes import CLUSTER_AUTHORIZATION_FAILED
from mm2py.kafka.errors import BrokerRefused, plain_message

OF_3 = (
    "Request Request(processor=2, connectionId=10.0.0.1:9092-10.0.0.2:5005-0-17, session=Session({user},/10.0.0.2),"
    " listenerName=ListenerName(SASL_SSL), securityProtocol=SASL_SSL,"
    " buffer=java.nio.HeapByteBuffer[pos=47 lim=47 cap=47], envelope=None) is not authorized."
)
OF_4 = (
    "Request Request(processor=2, connectionId=10.0.0.1:9092-10.0.0.2:5005-0-17,"
    " session=org.apache.kafka.network.Session@1b2c3d, listenerName=ListenerName(SASL_SSL), securityProtocol=SASL_SSL,"
    " buffer=java.nio.HeapByteBuffer[pos=47 lim=47 cap=47], envelope=None) needs DESCRIBE permission."
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (OF_4, "The request needs DESCRIBE permission."),
        (OF_3.format(user="User:mm2py"), "The request of User:mm2py is not authorized."),
        (OF_3.format(user="User:CN=mm,O=x"), "The request of User:CN=mm,O=x is not authorized."),
        (OF_4.replace("None", "Some(RequestChannel.Envelope(a=(b)))"), "The request needs DESCRIBE permission."),
        (f"No: {OF_4}", "No: the request needs DESCRIBE permission."),
        (OF_4[:200], "The request"),
        ("Topic 'orders' (new) already exists.", "Topic 'orders' (new) already exists."),
        ("", ""),
    ],
)
def test_the_dump_of_a_request_is_left_out_of_what_a_broker_says(said: str, told: str) -> None:
    assert plain_message(said) == told


def test_a_refusal_tells_what_a_human_can_use() -> None:
    error = BrokerRefused("Listing the ACLs of topics", CLUSTER_AUTHORIZATION_FAILED, message=OF_4)
    assert str(error).startswith(
        "Listing the ACLs of topics was refused with CLUSTER_AUTHORIZATION_FAILED (31): The request needs DESCRIBE"
        " permission."
    )
