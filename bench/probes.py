"""The two ends of a latency measurement, each in its own process: a writer at a steady pace, and a reader.

Records contain the monotonic time of their sending, which all processes of a machine share. Both ends use librdkafka
without waits: ``linger.ms=0``, unless another value is given, and reads that are answered with the first byte.

    python -m bench.probes write BOOTSTRAP TOPIC PARTITIONS PER_SECOND SECONDS BYTES [LINGER_MS]
    python -m bench.probes read BOOTSTRAP TOPIC PARTITIONS RECORDS LONGEST_S

The writer prints when it started, in ns. The reader prints ``ready``, then its results: a list of [sent ns, latency
ns].
"""

from __future__ import annotations

import gc
import json
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

STAMP: Final = struct.Struct(">8sq")
MARK: Final = b"mm2bench"
ANSWER_S: Final = 30.0


def write(
    bootstrap: str, topic: str, partitions: int, *, per_second: int, seconds: float, size: int, linger_ms: int = 0
) -> int:
    """Write records to the first ``partitions`` in rotation; return 1 if the source did not take all of them."""
    failures: list[KafkaError] = []

    def settled(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": linger_ms, "acks": "all", "log_level": 0})
    producer.list_topics(topic, timeout=ANSWER_S)
    rest = bytes(size - STAMP.size)
    begun_ns = time.monotonic_ns()
    print(begun_ns, flush=True)
    for number in range(int(per_second * seconds)):
        wait_s = (begun_ns - time.monotonic_ns()) / 1e9 + number / per_second
        if wait_s > linger_ms / 1000:
            time.sleep(wait_s)
        value = STAMP.pack(MARK, time.monotonic_ns()) + rest
        producer.produce(topic, value=value, partition=number % partitions, on_delivery=settled)
        producer.poll(0)
    left = producer.flush(ANSWER_S)
    return 1 if failures or left else 0


def read(bootstrap: str, topic: str, partitions: int, *, records: int, longest_s: float) -> int:
    """Read new records of the first ``partitions``, until there were ``records`` different ones."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
    )
    places = [TopicPartition(topic, number) for number in range(partitions)]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, timeout=ANSWER_S)[1]
    consumer.assign(places)
    consumer.poll(0.5)  # so that reads are pending before anything is written
    print("ready", flush=True)
    seen: dict[int, int] = {}  # by the time of sending; of duplicates the first counts
    end_s = time.monotonic() + longest_s
    while len(seen) < records and time.monotonic() < end_s:
        message = consumer.poll(0.5)
        now_ns = time.monotonic_ns()
        value = None if message is None else message.value()
        if value is not None and value.startswith(MARK):
            sent_ns = STAMP.unpack_from(value)[1]
            seen.setdefault(sent_ns, now_ns - sent_ns)
    print(json.dumps(list(seen.items())), flush=True)
    return 0


def main(arguments: Sequence[str]) -> int:
    gc.disable()  # a garbage collection pause would look like latency
    what, bootstrap, topic, *numbers = arguments
    if what == "write":
        partitions, per_second, seconds, size, *linger = numbers
        return write(
            bootstrap,
            topic,
            int(partitions),
            per_second=int(per_second),
            seconds=float(seconds),
            size=int(size),
            linger_ms=int(linger[0]) if linger else 0,
        )
    partitions, records, longest_s = numbers
    return read(bootstrap, topic, int(partitions), records=int(records), longest_s=float(longest_s))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
