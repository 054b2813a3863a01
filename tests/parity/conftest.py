"""What the parity tests share: a JVM that holds Kafka's and MirrorMaker 2's own classes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import py4j.java_gateway
import py4j.protocol
import pytest
from py4j.java_gateway import JavaGateway

from deploy.local.errors import MissingTool
from deploy.local.jars import jar_directory
from deploy.local.java import java
from tests.cluster.running import ANSWER_S

# Deeply nested patterns need stack; the log of the classes called is of no interest.
JVM_OPTIONS = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-Xss8m"]


@pytest.fixture(scope="session")
def jvm() -> Iterator[JavaGateway]:
    """A gateway to a JVM with all of Kafka's jars: ``jvm.jvm.java.util.regex.Pattern.compile("a+")``.

    It listens on loopback behind a token and ends with the session, whatever ends the session: it watches its standard
    input, which the kernel closes.
    """
    try:
        jars, java_path = jar_directory(), java()
    except MissingTool as missing:
        pytest.skip(str(missing))
    gateway = JavaGateway.launch_gateway(
        classpath=f"{jars}/*",
        javaopts=JVM_OPTIONS,
        java_path=str(java_path),
        die_on_exit=True,
        enable_auth=True,
    )
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.java_process.stdin.close()
        try:
            gateway.java_process.wait(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            gateway.java_process.kill()
            gateway.java_process.wait()


@pytest.fixture(autouse=True)
def plain_errors_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a session of Spark was opened in this process, PySpark asks each JVM for errors in Spark's words. Ours has
    none of its classes."""
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)
