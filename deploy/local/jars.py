"""The jars of Kafka, MirrorMaker 2 and ZooKeeper: named in ``pom.xml``, copied by Maven once for all checkouts.

Of other versions of Kafka only brokers are needed: their jars are named in ``broker_pom.xml``. The jars of Spark's own
source of Kafka are named in ``spark_kafka_pom.xml``.

``python -m deploy.local.jars [VERSION]`` prints the directory, fetching first when it is not there yet.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.local.errors import MissingTool
from deploy.local.java import find_java, java
from deploy.local.once import cache_directory, directory_made_once, lock

POM = Path(__file__).with_name("pom.xml")
BROKER_POM = Path(__file__).with_name("broker_pom.xml")
SPARK_KAFKA_POM = Path(__file__).with_name("spark_kafka_pom.xml")
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies"


def default_kafka_version(pom: str) -> str:
    """Return the version of Kafka that the pom names."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", pom)
    if found is None:
        raise MissingTool("pom.xml names no kafka.version.", remedy="Restore deploy/local/pom.xml.")
    return found.group(1)


def jar_directory_name(pom: str, kafka_version: str) -> str:
    """Return a name that changes with the pom and the version, so that the contents of a directory never change."""
    return f"jars-{kafka_version}-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"


def jar_directory(kafka_version: str | None = None) -> Path:
    """Return the directory of jars for a version of Kafka, the pom's own by default; fetch them if missing.

    Another version than the pom's comes without MirrorMaker 2 and ZooKeeper.

    Raises:
        MissingTool: Maven is missing, or could not fetch the jars; the message holds the end of its output.
    """
    default = default_kafka_version(POM.read_text())
    version = kafka_version or default
    pom = POM if version == default else BROKER_POM
    return directory_made_once(
        cache_directory() / jar_directory_name(pom.read_text(), version), lambda draft: _fetch(pom, version, draft)
    )


def spark_kafka_directory() -> Path:
    """Return the directory of jars that Spark needs for its own Kafka source; fetch them if missing.

    Raises: MissingTool, as ``jar_directory``.
    """
    pom = SPARK_KAFKA_POM
    name = f"spark-{jar_directory_name(pom.read_text(), 'kafka')}"
    return directory_made_once(cache_directory() / name, lambda draft: _fetch(pom, "for Spark", draft))


def _fetch(pom: Path, kafka_version: str, directory: Path) -> None:
    print(f"Fetching the jars of Kafka {kafka_version} once into {cache_directory()}.", file=sys.stderr, flush=True)
    command = [
        *(_maven(), "--batch-mode", "--quiet", "--file", str(pom), COPY_GOAL),
        *("-DincludeScope=runtime", f"-Dkafka.version={kafka_version}", f"-DoutputDirectory={directory}"),
    ]
    done = subprocess.run(
        command,
        check=False,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0 or not any(directory.glob("kafka-clients-*.jar")):
        raise MissingTool(
            f"Maven did not fetch the jars of Kafka {kafka_version}. It said:\n{done.stdout[-4_000:]}\n",
            remedy="Check that this machine reaches Maven's central repository, or its mirror in ~/.m2/settings.xml.",
        )


def _environment() -> dict[str, str]:
    """Return Maven's environment: it finds the machine's own Java by itself, but not the one in the wheel."""
    own = {} if find_java() else {"JAVA_HOME": str(java().resolve().parents[1])}
    return {**os.environ, **own}


def _maven() -> str:
    found = shutil.which("mvn")
    if found:
        return found
    by_hand = "apt-get update && apt-get install --yes --no-install-recommends maven"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise MissingTool("Maven is not installed.", remedy=f"Run once: sudo sh -c '{by_hand}'")
    print("Maven is not installed: installing Debian's.", file=sys.stderr, flush=True)
    with lock(cache_directory() / "maven.lock"):
        done = subprocess.run(
            ["sh", "-c", by_hand],
            check=False,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    found = shutil.which("mvn")
    if found is None:
        raise MissingTool(
            f"apt-get did not install Maven. It said:\n{done.stdout[-2_000:]}\n", remedy=f"Run by hand: {by_hand}"
        )
    return found


def main(arguments: list[str]) -> int:
    """Print the directory of jars; exit code 1 with the reason if there is none."""
    try:
        print(jar_directory(arguments[0] if arguments else None))
    except MissingTool as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
