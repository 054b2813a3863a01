"""A source whose broker lies about sizes: the worker copies on, and REST and ``mm2py status`` answer. B83."""

from __future__ import annotations

from pathlib import Path

import httpx2

from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import create_topic, new_name, values, write
from tests.cluster.rest.test_rest_process import addresses, rest_processes
from tests.cluster.running import ANSWER_S, Mm2py, one_way_properties
from tests.cluster.strangers import strangers

HOSTILE = ("endless", "crowded")
PEAK_KB_MOST = 400 << 10
"""A worker has some 100 MB. The library reserved 34 GB for the reply of 35 bytes."""


def peak_kb(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])


def test_replies_that_lie_about_their_size_end_neither_worker_nor_rest_nor_status(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_name("orders")
    create_topic(source_cluster, topic)
    write(source_cluster, topic, [b"1"])
    with strangers() as ports:
        properties = one_way_properties(source_cluster, target_cluster, topics=topic)
        properties["clusters"] = ",".join(["A", "B", *HOSTILE])
        properties["listeners"] = "http://127.0.0.1:0"
        for kind in HOSTILE:
            properties |= {f"{kind}.bootstrap.servers": f"127.0.0.1:{ports[kind]}", f"{kind}->B.enabled": True}
        with Mm2py(properties) as run:
            for kind in HOSTILE:
                run.wait_for_event("cluster.unreachable", cluster=kind, role="source")
            run.wait_until(lambda: values(target_cluster, f"A.{topic}") == [b"1"], "the good flow copies")
            run.wait_for_event("rest.listening")
            run.wait_until(lambda: len(rest_processes(run.pid)) == 1, "REST has its process")
            (address,), (rest,) = addresses(run), rest_processes(run.pid)

            def rest_tells_of_all() -> bool:
                answer = httpx2.get(f"{address}/v1/flows", timeout=ANSWER_S)
                return answer.status_code == 200 and all(f'"{name}->B"' in answer.text for name in ("A", *HOSTILE))

            run.wait_until(rest_tells_of_all, "REST tells of all flows")
            code, found = run.status()
            assert code in (1, 2, 3)
            assert {flow["flow"] for flow in found["flows"]} >= {"A->B"}
            write(source_cluster, topic, [b"2"])
            run.wait_until(lambda: values(target_cluster, f"A.{topic}") == [b"1", b"2"], "the good flow goes on")
            assert rest_processes(run.pid) == [rest], "the process that serves REST did not end"
            assert max(peak_kb(run.pid), peak_kb(rest)) < PEAK_KB_MOST
            assert run.terminate() == 0
            assert "Traceback" not in run.text()
