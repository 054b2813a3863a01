"""A member of a consumer group in a process of its own, which can be killed: ``python -m tests.cluster.group_reader``.

Arguments are brokers, group, protocol and topics. It commits what it has read, and prints how much that was, a line for
each time. A client of librdkafka whose brokers are gone cannot be closed at once: meanwhile it takes a whole core.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from confluent_kafka import KafkaException

from tests.cluster.group_offsets import member_at


def main(bootstrap: str, group: str, protocol: str, *topics: str) -> None:
    """Read until the process is killed."""
    client = member_at(bootstrap, group, protocol=protocol)
    client.subscribe([*topics])
    while True:
        with suppress(KafkaException):
            got = [one for one in client.consume(20, 0.1) if one.error() is None]
            if got:
                client.commit(asynchronous=True)
                print(len(got), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
