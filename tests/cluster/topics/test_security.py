"""Secured connections on a real broker: every way in that works copies, every one that does not says why (S12-S15).

One broker has a listener for each case. All flows that must work run in one process, and so do all that must not; a
flow without security beside the latter shows that none of them disturbs another.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from deploy.local.certificates import Authority, Certified, self_signed, tls_listener, write_private
from deploy.local.java import java
from deploy.local.jvm import QUICK_START
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.cluster.kafka_client import admin, create_topic, new_name, record_count, values, write
from tests.cluster.running import (
    ANSWER_S,
    COMMAND_S,
    PATIENCE,
    Mm2py,
    Value,
    during,
    one_way_properties,
    pause,
    wait_until,
)
from tests.fakes.token_server import Answer, TokenServer, given_token, jwt, token_server

PASSWORD = "canary-password"  # noqa: S105
STORE_PASSWORD = "canary-store"  # noqa: S105
CLIENT_SECRET = "canary-client"  # noqa: S105
TOKEN_LIFE_S = 5
SESSION_MS = 3_000
PACKAGE = "org.apache.kafka.common.security"
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MTLS": "SSL",
    "OTHERHOST": "SSL",
    "EXPIRED": "SSL",
    "SELFSIGNED": "SSL",
    "OLDTLS": "SSL",
    "SECURE": "SASL_SSL",
    "OPEN": "SASL_PLAINTEXT",
}


Ways = Mapping[str, tuple[str, Mapping[str, Value]]]


@dataclass
class World:
    """A broker with all its listeners, another without security, and the files that clients use."""

    secured: KafkaCluster
    plain: KafkaCluster
    directory: Path
    authority: Authority
    tokens: TokenServer
    refusing_tokens: TokenServer
    """Takes nobody's client id and secret."""

    def file(self, name: str, content: bytes) -> str:
        return str(write_private(self.directory / name, content))

    @property
    def trust(self) -> dict[str, Value]:
        path = self.directory / "ca.pem"
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}


def jaas(module: str, options: str) -> str:
    return f"{PACKAGE}.{module} required {options};"


def _broker_settings(directory: Path, authority: Authority) -> dict[str, str]:
    broker = authority.issue("broker")
    settings: dict[str, str] = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"}
    for listener, certified in {
        "TLS": broker,
        "MTLS": broker,
        "SECURE": broker,
        "OLDTLS": broker,
        "OTHERHOST": authority.issue("broker", ["kafka.example"]),
        "EXPIRED": authority.issue("broker", valid_days=(-9, -1)),
        "SELFSIGNED": self_signed("broker"),
    }.items():
        settings |= tls_listener(
            listener,
            directory,
            certified,
            authority,
            client_certificates=listener == "MTLS",
            versions="TLSv1.1" if listener == "OLDTLS" else "TLSv1.2,TLSv1.3",
        )
    scram = jaas("scram.ScramLoginModule", "")
    for listener in ("secure", "open"):
        prefix = f"listener.name.{listener}"
        settings |= {
            f"{prefix}.plain.sasl.jaas.config": jaas("plain.PlainLoginModule", f'user_anna="{PASSWORD}"'),
            f"{prefix}.scram-sha-256.sasl.jaas.config": scram,
            f"{prefix}.scram-sha-512.sasl.jaas.config": scram,
            f"{prefix}.oauthbearer.sasl.jaas.config": jaas(
                "oauthbearer.OAuthBearerLoginModule", 'unsecuredLoginStringClaim_sub="broker"'
            ),
            f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{prefix}.connections.max.reauth.ms": str(SESSION_MS),
        }
    settings["listener.name.open.sasl.enabled.mechanisms"] = "SCRAM-SHA-256,PLAIN"
    return settings


def _new_token() -> Answer:
    now = int(time.time())
    return given_token(jwt({"sub": "anna", "iat": now, "exp": now + TOKEN_LIFE_S}), expires_in=TOKEN_LIFE_S)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("security")
    authority = Authority()
    # Java refuses TLS 1.1 unless told otherwise; a broker that speaks nothing else is what the test is about.
    allowed = directory / "java.security"
    allowed.write_text("jdk.tls.disabledAlgorithms=NULL\n")
    secured = KafkaCluster(
        "secured",
        listeners=LISTENERS,
        settings=_broker_settings(directory, authority),
        jvm_options=(*QUICK_START, f"-Djava.security.properties={allowed}"),
    )
    server = write_private(directory / "tokens.pem", authority.issue("tokens").pem())
    with (
        start_clusters([secured, KafkaCluster("plain")]) as (_, plain),
        token_server(_new_token, server) as tokens,
        token_server(lambda: (401, {}, b'{"error":"invalid_client"}'), server) as refusing_tokens,
    ):
        client = admin(secured)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = UserScramCredentialUpsertion("anna", ScramCredentialInfo(mechanism, 8192), PASSWORD.encode())
            for done in client.alter_user_scram_credentials([user]).values():
                done.result(ANSWER_S)
        made = World(secured, plain, directory, authority, tokens, refusing_tokens)
        made.file("ca.pem", authority.pem())
        yield made


# -- what works -------------------------------------------------------------------------------------------------------


def _keytool(*arguments: str) -> None:
    command = [shutil.which("keytool", path=str(java().parent)) or shutil.which("keytool") or "keytool", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_S)


def _keytool_stores(world: World) -> dict[str, Value]:
    """A trust store that keytool made, and a key store that it imported; the types are Java's defaults."""
    trust, keys = world.directory / "trust.jks", world.directory / "keys.jks"
    store = ["-storepass", STORE_PASSWORD, "-noprompt", "-deststoretype", "PKCS12"]
    source = world.file("client-source.p12", world.authority.issue("client").pkcs12("source"))
    _keytool(
        "-importcert", "-alias", "ca", "-file", str(world.directory / "ca.pem"), "-keystore", str(trust),
        "-storetype", "PKCS12", *store[:3],
    )  # fmt: skip
    _keytool(
        "-importkeystore", "-srckeystore", source, "-srcstorepass", "source", "-destkeystore", str(keys),
        "-deststoretype", "PKCS12", "-deststorepass", STORE_PASSWORD, "-noprompt",
    )  # fmt: skip
    return {
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.location": str(keys),
        "ssl.keystore.password": STORE_PASSWORD,
    }


def _password(mechanism: str, password: str = PASSWORD) -> dict[str, Value]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(module, f'username="anna" password="{password}"'),
    }


def _tokens(world: World, server: TokenServer) -> dict[str, Value]:
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": server.url,
        "sasl.oauthbearer.client.credentials.client.id": "anna",
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
        "sasl.jaas.config": jaas(
            "oauthbearer.OAuthBearerLoginModule",
            f'ssl.truststore.type="PEM" ssl.truststore.location="{world.directory / "ca.pem"}"',
        ),
    }


def _token_file(world: World) -> dict[str, Value]:
    path = world.file("token", jwt({"sub": "anna", "iat": int(time.time()), "exp": int(time.time()) + 600}).encode())
    return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": f"file://{path}"}


def _inline(world: World, client: Certified) -> dict[str, Value]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": world.authority.pem().decode(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": client.certificate_pem().decode(),
        "ssl.keystore.key": client.key_pem(STORE_PASSWORD).decode(),
        "ssl.key.password": STORE_PASSWORD,
    }


@pytest.fixture(scope="module")
def ways(world: World) -> Ways:
    """By alias: a listener, and what the cluster's settings say."""
    client = world.authority.issue("client")
    tls: dict[str, Value] = {"security.protocol": "SSL", **world.trust}
    sasl: dict[str, Value] = {"security.protocol": "SASL_SSL", **world.trust}
    return {
        "tls": ("TLS", tls),
        "tls12": ("TLS", {**tls, "ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites":
                          "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}),
        "system": ("TLS", {"security.protocol": "SSL"}),  # the process is told to trust the authority
        "anyhost": ("OTHERHOST", {**tls, "ssl.endpoint.identification.algorithm": ""}),
        "mtls": ("MTLS", {**tls, "ssl.keystore.type": "PEM",
                          "ssl.keystore.location": world.file("client.pem", client.pem())}),
        "inline": ("MTLS", _inline(world, client)),
        "pkcs12": ("MTLS", {"security.protocol": "SSL", **_keytool_stores(world)}),
        "plain": ("SECURE", {**sasl, **_password("PLAIN")}),
        "scram256": ("SECURE", {**sasl, **_password("SCRAM-SHA-256")}),
        "scram512": ("SECURE", {**sasl, **_password("SCRAM-SHA-512")}),
        "open": ("OPEN", {"security.protocol": "SASL_PLAINTEXT", **_password("SCRAM-SHA-256")}),
        "tokens": ("SECURE", {**sasl, **_tokens(world, world.tokens)}),
        "tokenfile": ("SECURE", {**sasl, **_token_file(world)}),
    }  # fmt: skip


WORKING = [
    *("tls", "tls12", "system", "anyhost", "mtls", "inline", "pkcs12"),
    *("plain", "scram256", "scram512", "open", "tokens", "tokenfile"),
]


def _flows(world: World, ways: Ways, topic: str) -> dict[str, Value]:
    """A file with a flow ``<alias>->B`` for each way into the secured cluster."""
    properties = one_way_properties(world.plain, world.plain, names=("G", "B"), topics=topic)
    properties |= {"clusters": ",".join(["B", *ways]), "emit.heartbeats.enabled": False}
    del properties["G->B.enabled"], properties["G.bootstrap.servers"]
    for alias, (listener, settings) in ways.items():
        properties[f"{alias}.bootstrap.servers"] = world.secured.bootstrap_for(listener)
        properties[f"{alias}->B.enabled"] = True
        properties |= {f"{alias}.{name}": value for name, value in settings.items()}
    return properties


@dataclass
class Copying:
    run: Mm2py
    topic: str


@pytest.fixture(scope="module")
def copying(world: World, ways: Ways) -> Iterator[Copying]:
    """All flows that must work, in one process."""
    topic = new_name("orders")
    create_topic(world.secured, topic)
    write(world.secured, topic, [b"1", b"2"])
    system = {"SSL_CERT_FILE": str(world.directory / "ca.pem")}
    with Mm2py(_flows(world, ways, topic), environment=system, log_level="debug") as run:
        yield Copying(run, topic)
        assert run.terminate() == 0
        assert "canary" not in run.text()


@pytest.mark.parametrize("alias", WORKING)
def test_every_way_in_copies(world: World, copying: Copying, alias: str) -> None:
    remote = f"{alias}.{copying.topic}"
    copying.run.wait_until(lambda: values(world.plain, remote) == [b"1", b"2"], f"{remote} has its records")
    assert copying.run.events("cluster.unreachable", cluster=alias) == []


def _local_ports(run: Mm2py, ports: set[int]) -> set[int]:
    """Return the ports of our ends of the connections to these ports."""
    found = set()
    for line in Path(f"/proc/{run.pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if state == "01" and int(remote.partition(":")[2], 16) in ports:
            found.add(int(local.partition(":")[2], 16))
    return found


def test_sessions_and_tokens_that_end_are_renewed_on_the_same_connections(world: World, copying: Copying) -> None:
    """KIP-368: the broker ends sessions after three seconds, and tokens live for five."""
    aliases = ["plain", "scram256", "scram512", "tokens", "open"]
    for alias in aliases:
        copying.run.wait_until(lambda a=alias: len(values(world.plain, f"{a}.{copying.topic}")) >= 2, f"{alias} copies")
    ports = {world.secured.brokers[0].address.ports[name] for name in ("SECURE", "OPEN")}
    before, asked = _local_ports(copying.run, ports), len(world.tokens.asked)
    assert before
    written = 2
    for _ in during(2.5 * SESSION_MS / 1000, "sessions end meanwhile"):
        write(world.secured, copying.topic, [b"later"])
        written += 1
        pause(0.2, "a session has to grow old under traffic")
    for alias in aliases:
        remote = f"{alias}.{copying.topic}"
        copying.run.wait_until(lambda r=remote: record_count(world.plain, r) >= written, f"{remote} has all")
        assert record_count(world.plain, remote) == written, "nothing was repeated"
    assert before <= _local_ports(copying.run, ports), "a connection was lost"
    assert len(world.tokens.asked) > asked, "tokens are renewed"
    assert copying.run.events("security.stale") == []


def test_a_secured_cluster_can_be_the_target(world: World, ways: Ways) -> None:
    properties: dict[str, Value] = {
        **one_way_properties(world.plain, world.plain, names=("A", "X")),
        "clusters": "A,mtls,scram512",
        "emit.heartbeats.enabled": False,
    }
    del properties["A->X.enabled"], properties["X.bootstrap.servers"]
    topics = {alias: new_name(f"into-{alias}") for alias in ("mtls", "scram512")}
    for alias, topic in topics.items():
        create_topic(world.plain, topic)
        write(world.plain, topic, [b"1", b"2", b"3"])
        listener, settings = ways[alias]
        properties[f"{alias}.bootstrap.servers"] = world.secured.bootstrap_for(listener)
        properties |= {f"{alias}.{name}": value for name, value in settings.items()}
        properties |= {f"A->{alias}.enabled": True, f"A->{alias}.topics": topic}
    with Mm2py(properties) as run:
        for topic in topics.values():
            wanted = [b"1", b"2", b"3"]
            run.wait_until(lambda t=topic, w=wanted: values(world.secured, f"A.{t}") == w, f"A.{topic} is written")
        assert run.terminate() == 0


# -- what does not ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failing:
    listener: str
    settings: Mapping[str, Value]
    why: str


def _failing(world: World) -> dict[str, Failing]:
    other = Authority("other")
    tls: dict[str, Value] = {"security.protocol": "SSL", **world.trust}
    sasl: dict[str, Value] = {"security.protocol": "SASL_SSL", **world.trust}
    foreign = {**tls, "ssl.truststore.location": world.file("other.pem", other.pem())}
    stranger = {
        **tls,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": world.file("stranger.pem", other.issue("client").pem()),
    }
    client = world.authority.issue("client")
    expired = world.authority.issue("client", valid_days=(-9, -1))
    pkcs12: dict[str, Value] = {
        **tls,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": world.file("client.p12", client.pkcs12(STORE_PASSWORD)),
        "ssl.keystore.password": "canary-x",
    }
    unsigned = world.file("bad-token", b"neither.a.token")
    refused_token = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{unsigned}",
    }
    untrusted_server = {
        **_tokens(world, world.tokens),
        "sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", ""),
    }
    return {
        "wrongpassword": Failing("SECURE", {**sasl, **_password("PLAIN", "canary-x")},
                                 "did not authenticate mm2py by PLAIN: Authentication failed: Invalid username or"),
        "wrongscram": Failing("SECURE", {**sasl, **_password("SCRAM-SHA-512", "canary-x")},
                              "did not authenticate mm2py by SCRAM-SHA-512: Authentication failed during"),
        "wrongscram256": Failing("SECURE", {**sasl, **_password("SCRAM-SHA-256", "canary-x")},
                                 "did not authenticate mm2py by SCRAM-SHA-256: Authentication failed during"),
        "wrongpkcs12": Failing("MTLS", pkcs12, "client.p12 cannot be used: ssl.keystore.password does not open it"),
        "strangerinline": Failing("MTLS", _inline(world, other.issue("client")), "it refuses our certificate"),
        "wronginline": Failing("MTLS", {**_inline(world, client), "ssl.key.password": "canary-x"},
                               "ssl.keystore.key cannot be used: ssl.key.password does not open the private key"),
        "expiredclient": Failing("MTLS", _inline(world, expired), "it refuses our certificate"),
        "refusedclient": Failing("SECURE", {**sasl, **_tokens(world, world.refusing_tokens)}, "it answers 401"),
        "notoffered": Failing("OPEN", {"security.protocol": "SASL_PLAINTEXT", **_password("SCRAM-SHA-512")},
                              "it offers other mechanisms: "),
        "badtoken": Failing("SECURE", {**sasl, **refused_token}, "by OAUTHBEARER: it refuses the token"),
        "notokens": Failing("SECURE", {**sasl, **untrusted_server}, "comes from an authority that is not trusted"),
        "wrongca": Failing("TLS", foreign, "its certificate comes from an authority that is not trusted"),
        "wronghost": Failing("OTHERHOST", tls, "its certificate is not for 127.0.0.1"),
        "expired": Failing("EXPIRED", tls, "its certificate has expired"),
        "selfsigned": Failing("SELFSIGNED", tls, "its certificate is self-signed and not trusted"),
        "oldtls": Failing("OLDTLS", tls, "it shares no TLS version with mm2py, which speaks TLSv1.2 and TLSv1.3"),
        "nocertificate": Failing("MTLS", tls, "it asks for a client certificate, and none is set"),
        "stranger": Failing("MTLS", stranger, "it refuses our certificate"),
        "nofile": Failing("TLS", {**tls, "ssl.truststore.location": "/nowhere/ca.pem"}, "there is no such file"),
        "notls": Failing("PLAINTEXT", tls, "it hung up during the handshake; a listener that speaks plain text does"),
        "nosasl": Failing("TLS", {**sasl, **_password("PLAIN")}, "this listener does no SASL"),
        "wantssasl": Failing("SECURE", tls, "a listener that asks for SASL does so"),
        "wantstls": Failing("SECURE", {"security.protocol": "SASL_PLAINTEXT", **_password("PLAIN")},
                            "it speaks TLS, and security.protocol is SASL_PLAINTEXT"),
    }  # fmt: skip


FAILING = [
    *("wrongpassword", "wrongscram", "notoffered", "badtoken", "notokens", "wrongca", "wronghost", "expired"),
    *("selfsigned", "oldtls", "nocertificate", "stranger", "nofile", "notls", "nosasl", "wantssasl", "wantstls"),
    *("wrongscram256", "wrongpkcs12", "strangerinline", "wronginline", "expiredclient", "refusedclient"),
]
BEFORE_CONNECTING = ("nofile", "notokens", "wrongpkcs12", "wronginline", "refusedclient")
"""What fails before there is an address to name."""


@dataclass
class Refusing:
    run: Mm2py
    expected: Mapping[str, Failing]
    good_topic: str


@pytest.fixture(scope="module")
def refusing(world: World, source_cluster: KafkaCluster) -> Iterator[Refusing]:
    """All flows that must not work and one that must, in one process."""
    topic = new_name("good")
    create_topic(source_cluster, topic)
    expected = _failing(world)
    properties = _flows(world, {name: (each.listener, each.settings) for name, each in expected.items()}, topic)
    open_but_forbidden = {**_password("SCRAM-SHA-256"), "sasl.require.tls": True}
    properties |= {f"forbidden.{name}": value for name, value in open_but_forbidden.items()}
    properties |= {
        "forbidden.bootstrap.servers": world.secured.bootstrap_for("OPEN"),
        "forbidden.security.protocol": "SASL_PLAINTEXT",
        "forbidden->B.enabled": True,
    }
    properties["clusters"] = f"{properties['clusters']},G,forbidden"
    properties |= {"G.bootstrap.servers": source_cluster.bootstrap, "G->B.enabled": True}
    with Mm2py(properties, log_level="debug") as run:
        yield Refusing(run, expected, topic)
        assert run.terminate() == 0
        assert "canary" not in run.text()
        assert "Traceback" not in run.text()


@pytest.mark.parametrize("alias", FAILING)
def test_every_wrong_way_in_says_why_and_the_good_flow_goes_on(
    world: World, source_cluster: KafkaCluster, refusing: Refusing, alias: str
) -> None:
    said = refusing.run.wait_for_event("cluster.unreachable", cluster=alias, flow=f"{alias}->B")
    assert refusing.expected[alias].why in said["why"]
    port = world.secured.brokers[0].address.ports[refusing.expected[alias].listener]
    assert f"127.0.0.1:{port}" in said["why"] or alias in BEFORE_CONNECTING
    write(source_cluster, refusing.good_topic, [alias.encode()])
    remote = f"G.{refusing.good_topic}"
    refusing.run.wait_until(
        lambda: values(world.plain, remote)[-1:] == [alias.encode()], "the good flow copies on beside it"
    )


def test_sasl_without_tls_is_not_even_tried_where_it_is_forbidden(
    world: World, refusing: Refusing, copying: Copying
) -> None:
    """S15: the listener lets in whoever asks it (the flow ``open`` does); with sasl.require.tls nobody does."""
    said = refusing.run.wait_for_event("flow.refused", flow="forbidden->B")
    assert "is SASL_PLAINTEXT, and forbidden.sasl.require.tls" in said["why"]
    copying.run.wait_until(lambda: values(world.plain, f"open.{copying.topic}"), "the listener lets others in")
    assert refusing.run.events("topics.copying", flow="forbidden->B") == []
    assert refusing.run.events("cluster.unreachable", cluster="forbidden") == []


def test_a_wrong_password_is_not_tried_again_and_again(world: World, refusing: Refusing) -> None:
    refusing.run.wait_for_event("cluster.unreachable", cluster="wrongpassword")
    began_s = time.monotonic()
    log = world.secured.brokers[0].log_path
    before = log.read_text().count("Invalid username or password")
    pause(4, "an interval is what this is about")
    attempts = log.read_text().count("Invalid username or password") - before
    assert time.monotonic() - began_s >= attempts - 2, f"{attempts} attempts in four seconds"


# -- what changes while it runs ---------------------------------------------------------------------------------------


def test_renewed_files_are_used_without_a_restart(world: World) -> None:
    """S14: keys, authorities and tokens are replaced under a running process."""
    topic = new_name("renewed")
    create_topic(world.secured, topic)
    write(world.secured, topic, [b"1"])
    stranger = Authority("stranger")
    keys = world.file("renewed.pem", stranger.issue("client").pem())
    trust = world.file("renewed-ca.pem", stranger.pem())
    token = world.file("renewed-token", jwt({"sub": "anna", "exp": 5}).encode())
    settings: dict[str, Value] = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trust,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys,
    }
    by_token: dict[str, Value] = {
        "security.protocol": "SASL_SSL",
        **world.trust,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{token}",
    }
    with Mm2py(_flows(world, {"renewed": ("MTLS", settings), "token": ("SECURE", by_token)}, topic)) as run:
        run.wait_for_event("cluster.unreachable", cluster="renewed", why=_pattern("authority that is not trusted"))
        world.file("renewed-ca.pem", world.authority.pem())
        run.wait_for_event("cluster.unreachable", cluster="renewed", why=_pattern("it refuses our certificate"))
        world.file("renewed.pem", world.authority.issue("client").pem())
        run.wait_until(lambda: values(world.plain, f"renewed.{topic}") == [b"1"], "it copies with the new certificate")
        run.wait_for_event("cluster.unreachable", cluster="token", why=_pattern("it has expired"))
        world.file("renewed-token", jwt({"sub": "anna", "iat": 1, "exp": int(time.time()) + 600}).encode())
        run.wait_until(lambda: values(world.plain, f"token.{topic}") == [b"1"], "it copies with the new token")
        # What is broken now was good before: it stays in use for the connections that follow.
        world.file("renewed.pem", b"-----BEGIN canary")
        world.secured.brokers[0].restart()
        stale = run.wait_for_event("security.stale", cluster="renewed", deadline_s=60 * PATIENCE)
        assert "renewed.pem cannot be used" in stale["why"]
        write(world.secured, topic, [b"2"])
        wait_until(
            lambda: values(world.plain, f"renewed.{topic}") == [b"1", b"2"], "it copies on", deadline_s=60 * PATIENCE
        )
        assert run.terminate() == 0
        assert "canary" not in run.text()


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))
