"""Several workers: each answers for all, and none needs the REST of another."""

from __future__ import annotations

import os
import signal
from typing import Any

from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import create_topic, new_name, write
from tests.cluster.rest.serving import LISTENERS, Asked
from tests.cluster.rest.test_rest_process import rest_processes
from tests.cluster.running import Mm2py, one_way_properties, wait_until


def test_any_worker_tells_the_lag_of_all_partitions_and_why_a_topic_is_refused(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Each of two workers copies two partitions, and one of them is the coordinator, which alone refuses."""
    a, b, topic, filled = new_name("A"), new_name("B"), new_name("orders"), new_name("filled")
    for name, partitions in ((topic, 4), (filled, 1)):
        create_topic(source_cluster, name, partitions=partitions)
    create_topic(target_cluster, f"{a}.{filled}", partitions=1)
    write(target_cluster, f"{a}.{filled}", ["foreign"])
    for number in range(4):
        write(source_cluster, topic, ["x" * 1000] * 10, partition=number)
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(a, b),
        **{"listeners": LISTENERS, f"{a}->{b}.topics": f"{topic},{filled}", "config.storage.replication.factor": 1},
    )
    with Mm2py(properties, arguments=("--workers", "2")) as run:
        addresses = [run.wait_for_event("parent.listening", worker=number)["at"] for number in (1, 2)]
        clients = [Asked(address, f"{a}->{b}") for address in addresses]

        def told(client: Asked) -> dict[str, Any]:
            page = client.told("GET", f"/v1/flows/{client.flow}/topics?limit=1000", 200)
            return {one["topic"]: one for one in page["items"]}

        def partitions(client: Asked) -> list[dict[str, Any]]:
            page: dict[str, Any] = client.told("GET", f"/v1/flows/{client.flow}/topics/{topic}/partitions", 200)
            found: list[dict[str, Any]] = page["items"]
            return found

        for client in clients:
            wait_until(lambda client=client: len({one["owner"] for one in partitions(client)} - {None}) == 2, "two own")
            wait_until(lambda client=client: told(client)[topic]["lag_records"] == 0, "all is copied")
        clients[0].told("PUT", f"{clients[0].connector()}/pause", 202)
        for client in clients:
            client.wait_for_state("PAUSED")
        for number in range(4):
            write(source_cluster, topic, ["x" * 1000] * 5, partition=number)
        for client in clients:
            wait_until(lambda client=client: told(client)[topic]["lag_records"] == 20, "the lag is told")
            assert all(5000 <= one["lag_bytes"] <= 6000 and one["lag_s"] > 0 for one in partitions(client))
            assert 20_000 <= told(client)[topic]["lag_bytes"] <= 24_000 and told(client)[topic]["lag_note"] == ""
        clients[0].told("PUT", f"{clients[0].connector()}/resume", 202)
        for client in clients:
            wait_until(lambda client=client: told(client)[filled]["reason"] == "refused", "it is told who refuses")
            assert "not empty" in told(client)[filled]["why"]
        assert run.terminate() == 0


def test_any_worker_answers_for_all_and_what_is_changed_at_one_is_applied_by_the_other_whose_rest_is_gone(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    a, b, topic = new_name("A"), new_name("B"), new_name("orders")
    create_topic(source_cluster, topic, partitions=4)
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(a, b),
        **{"listeners": LISTENERS, f"{a}->{b}.topics": topic, "config.storage.replication.factor": 1},
    )
    with Mm2py(properties, arguments=("--workers", "2")) as run:
        clients = {
            number: Asked(run.wait_for_event("parent.listening", worker=number)["at"], f"{a}->{b}") for number in (1, 2)
        }
        assert clients[1].address != clients[2].address

        def tasks(client: Asked) -> list[str]:
            return [task["worker_id"] for task in client.told("GET", f"{client.connector()}/status", 200)["tasks"]]

        for client in clients.values():
            wait_until(lambda client=client: len(set(tasks(client))) == 2, "both workers are told of")
        first = next(event["pid"] for event in run.events("process.started", worker=1))
        (process,) = rest_processes(first)
        os.kill(process, signal.SIGSTOP)  # as if nobody could reach the REST of worker 1
        try:
            changed = clients[2].told("PATCH", f"{clients[2].connector()}/config", 200, json={"offset.lag.max": 9})
            for number in (1, 2):
                run.wait_for_event("config.changed", worker=number, version=changed["version"], by="rest")
            clients[2].told("PUT", f"{clients[2].connector()}/pause", 202)
            for number in (1, 2):
                run.wait_for_event("connector.paused", worker=number)
            assert clients[2].state() == "PAUSED"
            assert len(tasks(clients[2])) == 2
        finally:
            os.kill(process, signal.SIGCONT)
        wait_until(lambda: clients[1].state() == "PAUSED", "worker 1 tells the same")
        clients[1].told("PUT", f"{clients[1].connector()}/resume", 202)
        for number in (1, 2):
            run.wait_for_event("connector.running", worker=number)
        assert run.terminate() == 0
