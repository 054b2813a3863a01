"""Three sites from one file: its flows are those of the demo, and the compose file starts what it names."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.site_flows import CLUSTERS, FLOWS, SITES, clusters_of, copies_of, own_topic, site_of
from mm2py.config.configuration import read_settings_file
from mm2py.flow import Flow, TopicName
from mm2py.topics.filters import should_replicate

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "deploy/sites/mm2.properties"
COMPOSE = ROOT / "deploy/compose/compose.yaml"
COMPOSED: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
SERVICES: dict[str, Any] = COMPOSED["services"]
WORKERS = {f"worker-{site}": clusters_of(site) for site in SITES}
PROMETHEUS = yaml.safe_load((COMPOSE.parent / "prometheus.yml").read_text())


def networks(service: str) -> set[str]:
    return set(SERVICES[service]["networks"])


def test_the_file_has_the_flows_of_the_demo_and_no_other() -> None:
    configuration = read_settings_file(FILE, None).configuration()
    assert {flow.flow for flow in configuration.flows} == set(FLOWS)
    assert not configuration.warnings


@pytest.mark.parametrize("site", SITES)
def test_the_workers_of_a_site_run_the_flows_into_its_clusters_alone(site: str) -> None:
    configuration = read_settings_file(FILE, clusters_of(site)).configuration()
    assert {flow.flow for flow in configuration.flows} == {flow for flow in FLOWS if site_of(flow.target) == site}


def test_each_record_reaches_each_cluster_once_and_by_one_way() -> None:
    """The patterns of the file decide what is sent on: a copy that came by two ways would be there twice."""
    there = {alias: {own_topic(alias)} for alias in CLUSTERS}
    for flow in FLOWS:
        there[flow.target] |= set(copies_of(flow).values())
    for alias, topics in there.items():
        origins = sorted(topic.rpartition(".")[0].rpartition(".")[2] or alias for topic in topics)
        assert origins == sorted(CLUSTERS), (alias, topics)


@pytest.mark.parametrize("flow", FLOWS, ids=str)
def test_the_file_selects_the_topics_that_the_demo_compares(flow: Flow) -> None:
    configuration = read_settings_file(FILE, None).configuration()
    (found,) = [one for one in configuration.flows if one.flow == flow]
    there = {own_topic(flow.source)} | {
        remote for other in FLOWS if other.target == flow.source for remote in copies_of(other).values()
    }
    selected = {
        topic
        for topic in there
        if should_replicate(
            TopicName(topic),
            policy=found.policy,
            topic_filter=found.topic_filter,
            target_alias=flow.target,
            aliases=CLUSTERS,
            heartbeats_replication=found.heartbeats_replication,
        ).replicate
    }
    assert selected == set(copies_of(flow))


def test_compose_starts_a_broker_for_each_cluster_and_each_has_an_id_of_its_own() -> None:
    addresses = dict(re.findall(r"^([\w-]+)\.bootstrap\.servers = (\S+)$", FILE.read_text(), re.MULTILINE))
    assert set(addresses) == set(CLUSTERS)
    ids = set()
    for alias, address in addresses.items():
        node = SERVICES[alias]["environment"]
        assert node["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{address}"
        assert node["KAFKA_PROCESS_ROLES"] == "broker,controller"
        assert len(base64.urlsafe_b64decode(node["CLUSTER_ID"] + "==")) == 16
        assert len(SERVICES[alias]["volumes"]) == 1
        ids.add(node["CLUSTER_ID"])
    assert len(ids) == len(CLUSTERS)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_of_compose_reaches_the_clusters_of_its_flows_and_writes_to_those_of_its_site(worker: str) -> None:
    command = SERVICES[worker]["command"]
    assert command[command.index("--clusters") + 1 :] == WORKERS[worker]
    for flow in FLOWS:
        if flow.target in WORKERS[worker]:
            assert networks(worker) & networks(flow.target)
            assert networks(worker) & networks(flow.source)


@pytest.mark.parametrize("site", SITES)
def test_only_the_first_broker_and_the_worker_of_a_site_are_on_the_network_between_sites(site: str) -> None:
    between = {service for service in SERVICES if "between" in networks(service) and site in networks(service)}
    assert between == {f"{site}-1", f"worker-{site}"}


def test_prometheus_scrapes_each_worker_where_the_file_lets_it_listen_and_grafana_asks_prometheus() -> None:
    text = FILE.read_text()
    (port,) = re.findall(r"^admin\.listeners = http://0\.0\.0\.0:(\d+)$", text, re.MULTILINE)
    (hosts,) = re.findall(r"^rest\.hosts = (.+)$", text, re.MULTILINE)
    assert set(hosts.split(", ")) == set(WORKERS)
    (job,) = PROMETHEUS["scrape_configs"]
    assert [one["targets"] for one in job["static_configs"]] == [[f"{worker}:{port}"] for worker in WORKERS]
    assert all(networks("prometheus") & networks(worker) for worker in WORKERS)
    (source,) = yaml.safe_load((COMPOSE.parent / "grafana/datasource.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and networks("grafana") & networks("prometheus")


def test_compose_mounts_files_that_are_there_read_only_and_names_each_image_by_its_version() -> None:
    for name, service in SERVICES.items():
        for volume in service["volumes"]:
            source, _, rest = volume.partition(":")
            if source.startswith("."):
                assert (COMPOSE.parent / source).is_file(), volume
                assert "ro" in rest.rpartition(":")[2].split(","), volume
            else:
                assert source in COMPOSED["volumes"], volume
        (version,) = re.findall(r":-[\w./-]+:(v?\d+\.\d+\.\d+)\}$", service["image"])
        assert version, name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "what is to be tried is not served to other machines"
