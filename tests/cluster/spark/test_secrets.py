"""No secret of the settings file is in what Spark shows or keeps: S31."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from deploy.local.kafka import KafkaCluster
from deploy.local.ports import lease_ports
from deploy.local.spark import SparkCluster
from tests.checker.traffic import Traffic
from tests.cluster.copies import make_topic, now_ms, send
from tests.cluster.rest.canaries import Canaries
from tests.cluster.running import ANSWER_S, wait_until
from tests.cluster.spark.backfills import EXECUTORS, backfill, command_lines, finished, held, worker

pytest.importorskip("pyspark", reason="Run `make venv-spark`.")

RECORDS = 20_000
"""At 1 MB/s they take some seconds: the job runs while its pages are read."""
PAGES_MOST = 150
CREDENTIALS = (
    *("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password"),
    *("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase"),
)
PREFIXES = ("", "A.", "B.", "A.consumer.", "B.producer.", "A->B.producer.override.")
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="mirror" password="{}";'


def planted(canaries: Canaries, folder: Path) -> dict[str, str]:
    """Return credentials that no client uses: in the file, and in another one that references name."""
    found = {f"{at}{name}": canaries.token(f"file: {at}{name}") for at in PREFIXES for name in CREDENTIALS}
    found |= {f"{at}sasl.jaas.config": LOGIN.format(canaries.token(f"file: {at}jaas")) for at in PREFIXES}
    secrets = folder / "secrets.properties"
    secrets.write_text(f"key={canaries.token('another file')}\n")
    found |= {"security.protocol": "PLAINTEXT", "config.providers": "file"}
    found["config.providers.file.class"] = "org.apache.kafka.common.config.provider.FileConfigProvider"
    found["B.admin.ssl.key.password"] = f"${{file:{secrets}:key}}"
    return found


def page(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=ANSWER_S) as answer:  # noqa: S310  (http)
            return str(answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        return str(error.read().decode(errors="replace"))


def pages(*starts: str) -> Iterator[str]:
    """Yield the pages of Spark, and all to which they lead on the same listener; none that would end a job."""
    waiting, seen = [*starts], set(starts)
    while waiting:
        assert len(seen) < PAGES_MOST, sorted(seen)
        address = waiting.pop(0)
        text = page(address)
        yield text
        origin = "/".join(address.split("/")[:3])
        for link in re.findall(r"""href=["']([^"'#]+)""", text):
            target = (origin + link if link.startswith("/") else link).replace("&amp;", "&")
            is_new = target.startswith(origin) and target not in seen
            if is_new and not re.search(r"/kill/|/static/|\?.*sort|/log\?", target):
                seen.add(target)
                waiting.append(target)


@pytest.mark.slow
@pytest.mark.parametrize("expressions", [(), ("--where", "length(topic) > 1")], ids=["all", "some"])
def test_no_secret_is_in_spark_s_settings_pages_event_log_or_command_lines(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, expressions: tuple[str, ...]
) -> None:
    """S31: while a backfill runs on a standalone cluster. The name of its topic has to be found everywhere."""
    canaries = Canaries()
    topic = canaries.token("the name of a topic")
    make_topic(source_cluster, topic, 2)
    send(source_cluster, topic, islice(Traffic(seed=1, partitions=2, first_timestamp_ms=now_ms()).records(), RECORDS))
    run = worker(source_cluster, target_cluster, [topic], **planted(canaries, tmp_path))
    events = tmp_path / "events"
    events.mkdir()
    (lease,) = lease_ports(1)
    texts: dict[str, list[str | bytes]] = {}
    with SparkCluster(workers=1, cores=2, environment=EXECUTORS) as spark:
        settings = spark.client_settings | {
            "spark.ui.enabled": "true",
            "spark.ui.port": str(lease.port),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
        }
        arguments = ("--master", spark.master, "--max-mb-per-second", "1", "--topics", topic, *expressions)
        with backfill(run.file, *arguments, settings=settings) as process:
            held(process)
            own = f"http://127.0.0.1:{lease.port}"
            api = f"{own}/api/v1/applications"
            application = f"{api}/{json.loads(page(api))[0]['id']}"
            wait_until(lambda: json.loads(page(f"{application}/stages?status=active")), "its tasks run")
            asked = [f"{application}/{one}" for one in ("environment", "jobs", "stages", "allexecutors", "sql")]
            texts["settings"] = [page(f"{own}/environment/"), page(asked[0])]
            texts["pages"] = [*pages(f"{own}/jobs/", f"{own}/stages/", f"{own}/executors/", f"{own}/SQL/", *asked)]
            texts["cluster"] = [*pages(*(f"{server.page}/" for server in spark.workers))]
            lines = command_lines(process.pid, *(server.pid for server in spark.workers))
            texts["command lines"] = [*lines.values()]
            assert process.poll() is None, "it ended before all was read"
            texts["output"] = [finished(process)]
        texts["event log"] = [one.read_bytes() for one in events.rglob("*") if one.is_file()]
    texts["results"] = [one.read_bytes() for one in run.file.parent.glob("*.parquet")]
    assert any(b"CoarseGrainedExecutorBackend" in line for line in lines.values())
    assert any(b"pyspark/daemon" in line or b"pyspark.daemon" in line for line in lines.values())
    leaks = canaries.leaks(texts)
    found_at = {where for where, secrets in leaks.items() if secrets.pop(topic, None) is not None}
    assert {where: secrets for where, secrets in leaks.items() if secrets} == {}
    assert found_at >= {"settings", "pages", "command lines", "output", "event log", "results"}
    lease.release()
