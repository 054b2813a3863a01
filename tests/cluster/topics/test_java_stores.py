"""Stores in Java's own format, made by keytool: the refusal's line, run as it is printed, makes what mm2py reads."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.certificates import Authority
from deploy.local.java import java
from mm2py.config.configuration import load_configuration
from mm2py.flow import parse_flow
from mm2py.kafka.security.key_material import identity_of, trusted_certificates
from mm2py.kafka.security.settings import TlsSettings
from mm2py.secret import Secret
from tests.cluster.running import COMMAND_S

PASSWORD = "canary-store"  # noqa: S105
LINE = re.compile(r"Convert it with: (keytool .*?) ;")


def _keytool(*arguments: str, answers: str = "") -> None:
    command = [shutil.which("keytool", path=str(java().parent)) or shutil.which("keytool") or "keytool", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_S, input=answers.encode())


def _load(directory: Path, name: str) -> tuple[TlsSettings | None, str]:
    """Return the TLS of A with stores of this ending, and why the flow is refused."""
    file = directory / "mm2.properties"
    stores = {kind: str(directory / f"my {kind}.{name}") for kind in ("truststore", "keystore")}
    settings = {
        "clusters": "A,B",
        "A.bootstrap.servers": "a:1",
        "B.bootstrap.servers": "b:1",
        "A->B.enabled": "true",
        "A.security.protocol": "SSL",
        **{f"A.ssl.{kind}.location": path for kind, path in stores.items()},
        **{f"A.ssl.{kind}.password": PASSWORD for kind in stores},
    }
    file.write_text(render_properties(settings))
    configuration = load_configuration(file, None)
    refused = configuration.refused.get(parse_flow("A->B"))
    return (None, str(refused)) if refused is not None else (configuration.flows[0].source.security.tls, "")


@pytest.mark.parametrize("kind", ["JKS", "JCEKS"])
def test_the_printed_line_converts_both_stores_of_java(tmp_path: Path, kind: str) -> None:
    authority = Authority()
    client = authority.issue("client")
    (tmp_path / "ca.pem").write_bytes(authority.pem())
    (tmp_path / "client.p12").write_bytes(client.pkcs12(PASSWORD))
    made = ["-storetype", kind, "-storepass", PASSWORD, "-noprompt"]
    trust, keys = tmp_path / "my truststore.jks", tmp_path / "my keystore.jks"
    _keytool("-importcert", "-alias", "ca", "-file", str(tmp_path / "ca.pem"), "-keystore", str(trust), *made)
    _keytool(
        *("-importkeystore", "-srckeystore", str(tmp_path / "client.p12"), "-srcstorepass", PASSWORD),
        *("-destkeystore", str(keys), "-deststoretype", kind, "-deststorepass", PASSWORD, "-noprompt"),
    )

    _, refused = _load(tmp_path, "jks")
    lines = LINE.findall(refused)
    assert len(lines) == 2, refused
    assert PASSWORD not in refused
    for line in lines:
        _, *arguments = shlex.split(line)
        _keytool(*arguments, answers=f"{PASSWORD}\n" * 3)

    tls, refused = _load(tmp_path, "p12")
    assert tls is not None and tls.trust is not None and tls.keys is not None, refused
    assert tls.trust.password == Secret(PASSWORD)
    trusted = trusted_certificates(tls.trust, (tmp_path / "my truststore.p12").read_bytes())
    assert trusted == [authority.certified.certificate]
    identity = identity_of(tls.keys, (tmp_path / "my keystore.p12").read_bytes())
    assert identity.pem().startswith(b"-----BEGIN PRIVATE KEY-----")
