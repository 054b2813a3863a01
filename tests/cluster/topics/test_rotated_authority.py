"""S14: the authority of a cluster is replaced while records come: first trusted beside the old one, then alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.certificates import Authority, tls_listener, write_private
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.cluster.loads import Loads
from tests.cluster.running import Mm2py, one_way_properties

LISTENER = "MTLS"


class Rotated:
    """A source that wants client certificates, and the files of it and of its client."""

    def __init__(self, directory: Path) -> None:
        self.first, self.second = Authority("first"), Authority("second")
        self._directory = directory
        self.broker_gets(self.first, trusts=[self.first])
        self.client_gets(self.first)
        self.client_trusts(self.first)
        settings = tls_listener(LISTENER, directory, self.first.issue("broker"), self.first, client_certificates=True)
        self.cluster = KafkaCluster("rotated", listeners={LISTENER: "SSL"}, settings=settings)

    def broker_gets(self, authority: Authority, *, trusts: list[Authority]) -> None:
        """Give the broker a certificate of an authority, and let it trust some; it reads them when it starts."""
        self._write("mtls.pem", authority.issue("broker").pem())
        self._write("mtls-ca.pem", b"".join(each.pem() for each in trusts))

    def client_gets(self, authority: Authority) -> None:
        self._write("client.pem", authority.issue("client").pem())

    def client_trusts(self, *authorities: Authority) -> None:
        self._write("client-ca.pem", b"".join(each.pem() for each in authorities))

    def properties(self) -> dict[str, str]:
        files = {"keystore": "client.pem", "truststore": "client-ca.pem"}
        found = {f"A.ssl.{store}.location": str(self._directory / name) for store, name in files.items()}
        found |= {f"A.ssl.{store}.type": "PEM" for store in files}
        return found | {"A.security.protocol": "SSL", "A.bootstrap.servers": self.cluster.bootstrap_for(LISTENER)}

    def _write(self, name: str, content: bytes) -> None:
        write_private(self._directory / name, content)


@pytest.fixture
def rotated(tmp_path: Path) -> Iterator[Rotated]:
    made = Rotated(tmp_path)
    with start_clusters([made.cluster]):
        yield made


def test_an_authority_is_replaced_under_load_and_no_record_is_lost_or_repeated(
    rotated: Rotated, target_cluster: KafkaCluster
) -> None:
    loads = Loads(rotated.cluster, "rotated", per_second=500)
    properties = one_way_properties(rotated.cluster, target_cluster, topics=",".join(loads.topics))
    with Mm2py(properties | rotated.properties()) as run:
        with loads:
            loads.wait_for_copies(target_cluster, run, 1_000)
            rotated.client_trusts(rotated.first, rotated.second)
            rotated.broker_gets(rotated.second, trusts=[rotated.first, rotated.second])
            rotated.cluster.brokers[0].restart()  # all its clients connect anew
            loads.wait_for_copies(target_cluster, run, 1_000)
            rotated.client_gets(rotated.second)
            rotated.client_trusts(rotated.second)
            rotated.broker_gets(rotated.second, trusts=[rotated.second])
            rotated.cluster.brokers[0].restart()
            loads.wait_for_copies(target_cluster, run, 1_000)
        loads.assert_copied(target_cluster, run, max_rewinds=0)
        refused = [event["why"] for event in run.events("cluster.unreachable") if "certificate" in event["why"]]
        assert refused == [] and run.events("security.stale") == []
        assert run.terminate() == 0
