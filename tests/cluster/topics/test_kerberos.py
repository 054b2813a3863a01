"""Kerberos on a real broker and a real Kerberos server: both ways in copy, tickets are renewed, refusals say why.

The server, its realm and all keytabs are of this file. mm2py alone loads the package ``gssapi``, from a folder of its
own (``make venv-kerberos``). Where that or the server is missing, the end of the run names it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local.errors import MissingTool
from deploy.local.jvm import QUICK_START
from deploy.local.kafka import KafkaCluster
from deploy.local.kdc import REALM, Kdc, gssapi_folder
from tests.cluster.kafka_client import create_topic, new_name, record_count, write
from tests.cluster.running import COMMAND_S, OWN_PATH, PATIENCE, Mm2py, Value, during, one_way_properties, pause

TICKET_LIFE_S = 10
SESSION_MS = 3_000
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@dataclass
class Realm:
    """A Kerberos server, and a broker that lets in who has a ticket."""

    kdc: Kdc
    secured: KafkaCluster
    plain: KafkaCluster
    old_tickets: Path
    """A cache that was filled when this was made."""

    def environment(self, configuration: Path | None = None) -> dict[str, str]:
        """Return the variables of an mm2py that can do Kerberos."""
        return {
            **self.kdc.environment,
            **({} if configuration is None else {"KRB5_CONFIG": str(configuration)}),
            "PYTHONPATH": os.pathsep.join([OWN_PATH, str(gssapi_folder())]),
        }

    def way_in(self, keytab: Path | str, principal: str = "mirror") -> dict[str, Value]:
        """Return what a file says of the secured cluster, for any alias."""
        return {
            "bootstrap.servers": self.secured.bootstrap_for("KERBEROS"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": jaas(keytab, principal),
        }


def jaas(keytab: Path | str, principal: str) -> str:
    return f'{MODULE} required useKeyTab=true storeKey=true doNotPrompt=true keyTab="{keytab}" principal="{principal}";'


def by_cache(cache: Path) -> str:
    return f'{MODULE} required useTicketCache=true ticketCache="{cache}";'


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    try:
        gssapi_folder()
        server = Kdc(ticket_life_s=TICKET_LIFE_S)
    except MissingTool as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="module")
def realm(kdc: Kdc, source_cluster: KafkaCluster) -> Iterator[Realm]:
    keytab = kdc.keytab("kafka/127.0.0.1")
    broker = (
        f'{MODULE} required useKeyTab=true storeKey=true isInitiator=false keyTab="{keytab}"'
        f' principal="kafka/127.0.0.1@{REALM}";'
    )
    prefix = "listener.name.kerberos"
    settings = {
        "sasl.enabled.mechanisms": "GSSAPI",
        f"{prefix}.sasl.enabled.mechanisms": "GSSAPI",
        f"{prefix}.gssapi.sasl.jaas.config": broker,
        f"{prefix}.sasl.kerberos.service.name": "kafka",
        f"{prefix}.connections.max.reauth.ms": str(SESSION_MS),
    }
    with KafkaCluster(
        "kerberos",
        listeners={"PLAINTEXT": "PLAINTEXT", "KERBEROS": "SASL_PLAINTEXT"},
        settings=settings,
        jvm_options=(*QUICK_START, f"-Djava.security.krb5.conf={kdc.configuration}"),
    ) as secured:
        yield Realm(kdc, secured, source_cluster, kdc.tickets("mirror", kdc.keytab("mirror"), "old"))


def _of(alias: str, settings: Mapping[str, Value]) -> dict[str, Value]:
    return {f"{alias}.{name}": value for name, value in settings.items()}


def test_it_copies_from_and_to_a_cluster_with_kerberos_while_tickets_are_renewed(realm: Realm) -> None:
    """Tickets live for ten seconds, sessions for three. Then the Kerberos server is away for a while."""
    keytab = realm.kdc.keytab("mirror")
    inward, outward = new_name("inward"), new_name("outward")
    create_topic(realm.plain, inward)
    create_topic(realm.secured, outward)
    properties = {
        **one_way_properties(realm.plain, "unused:1", names=("P", "K"), **{"P->K.topics": inward}),
        **_of("K", realm.way_in(keytab)),
        "K->P.enabled": True,
        "K->P.topics": outward,
    }
    written = 0

    def write_both() -> None:
        nonlocal written
        written += 1
        for cluster, topic in ((realm.plain, inward), (realm.secured, outward)):
            write(cluster, topic, [str(written).encode()])

    def await_both(run: Mm2py) -> None:
        for cluster, remote in ((realm.secured, f"P.{inward}"), (realm.plain, f"K.{outward}")):
            run.wait_until(lambda c=cluster, r=remote: record_count(c, r) >= written, f"{remote} has all")
            assert record_count(cluster, remote) == written, "nothing was repeated"

    with Mm2py(properties, environment=realm.environment(), log_level="debug") as run:
        write_both()
        await_both(run)
        before = realm.kdc.logins("mirror")
        assert before > 0
        for _ in during(1.2 * TICKET_LIFE_S, "the first tickets end meanwhile"):
            write_both()
            pause(0.2, "a session has to grow old under traffic")
        await_both(run)
        assert realm.kdc.logins("mirror") > before, "tickets are renewed"
        assert run.events("security.stale") == []
        assert run.events("cluster.unreachable") == []

        realm.kdc.stop()
        stale = run.wait_for_event("security.stale", deadline_s=60 * PATIENCE)
        assert f"No Kerberos ticket with {keytab}: no Kerberos server can be reached" in stale["why"]
        assert "The old one stays in use" in stale["why"]
        write_both()
        realm.kdc.start()
        await_both(run)
        assert run.terminate() == 0


@dataclass(frozen=True, slots=True)
class Wrong:
    settings: Mapping[str, Value]
    why: str
    remedy: str


def _wrong_ways(realm: Realm) -> dict[str, Wrong]:
    kdc, directory = realm.kdc, realm.kdc.directory
    good = kdc.keytab("mirror")
    old = shutil.copy(kdc.keytab("anna"), directory / "old.keytab")
    kdc.keytab("anna", "new")  # makes new keys
    gone = kdc.keytab("gone")
    kdc.administer("delprinc", "-force", "gone")
    text = directory / "text"
    text.write_text("canary, no keytab")
    service = {**realm.way_in(good), "sasl.kerberos.service.name": "kofka"}
    expired = {**realm.way_in(good), "sasl.jaas.config": by_cache(realm.old_tickets)}
    nobodys = {**realm.way_in(good), "sasl.jaas.config": by_cache(directory / "nobodys")}
    return {
        "oldkeys": Wrong(realm.way_in(old, "anna"), f"with {old}: its key of anna is not the one", "Export the keytab"),
        "gone": Wrong(realm.way_in(gone, "gone"), "the Kerberos server does not know gone", "Check principal"),
        "other": Wrong(realm.way_in(good, "boris"), f"with {good}: it holds no key of boris", "See klist -k"),
        "nofile": Wrong(realm.way_in("/nowhere/a.keytab"), "/nowhere/a.keytab: No such file", "Let mm2py read"),
        "text": Wrong(realm.way_in(text), f"{text}: it is no keytab", "Name a keytab"),
        "service": Wrong(service, "knows no service kofka/127.0.0.1", "Check sasl.kerberos.service.name"),
        "expired": Wrong(expired, f"with {realm.old_tickets}: its ticket has expired", "Run kinit again"),
        "nobodys": Wrong(nobodys, f"with {directory / 'nobodys'}: there are no tickets in it", "Run kinit"),
        "realm": Wrong(realm.way_in(good, "mirror@OTHER.TEST"), "it holds no key of mirror@OTHER.TEST", "See klist -k"),
    }


def test_every_wrong_way_in_says_why_and_what_to_do(realm: Realm) -> None:
    wrong = _wrong_ways(realm)
    properties = one_way_properties(realm.plain, realm.plain, names=("P", "B"), topics=new_name("none"))
    del properties["P->B.enabled"], properties["P.bootstrap.servers"]
    properties["clusters"] = ",".join(["B", *wrong])
    for alias, way in wrong.items():
        properties |= {**_of(alias, way.settings), f"{alias}->B.enabled": True}
    with Mm2py(properties, environment=realm.environment()) as run:
        for alias, way in wrong.items():
            why = re.compile(re.escape(way.why))
            said = run.wait_for_event("cluster.unreachable", cluster=alias, why=why, deadline_s=60 * PATIENCE)
            assert way.remedy in said["why"]
        assert "canary" not in run.text()
        assert "Traceback" not in run.text()
        assert run.terminate() == 0


def test_a_kerberos_server_that_is_away_is_named_with_its_realm(realm: Realm) -> None:
    away = realm.kdc.directory / "away.conf"
    away.write_text(realm.kdc.configuration.read_text().replace(f":{realm.kdc.port}", ":1"))
    properties = {
        **one_way_properties("unused:1", realm.plain, names=("K", "B"), topics=new_name("none")),
        **_of("K", realm.way_in(realm.kdc.keytab("mirror"))),
    }
    with Mm2py(properties, environment=realm.environment(away)) as run:
        said = run.wait_for_event("cluster.unreachable", cluster="K")
        assert f"no Kerberos server can be reached (Cannot contact any KDC for realm '{REALM}')" in said["why"]
        assert run.terminate() == 0


def test_the_check_names_mechanism_and_user_of_a_keytab_and_of_a_cache_of_tickets(realm: Realm) -> None:
    keytab = realm.kdc.keytab("mirror")
    cache = {**realm.way_in(keytab), "sasl.jaas.config": by_cache(realm.kdc.tickets("mirror", keytab, "new"))}
    properties = {
        **one_way_properties("unused:1", realm.plain, names=("K", "B"), topics=new_name("none")),
        "clusters": "K,C,B",
        **_of("K", realm.way_in(keytab)),
        **_of("C", cache),
        "C->B.enabled": True,
    }
    run = Mm2py(properties)
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", "check", str(run.file), "--json"],
        capture_output=True,
        timeout=COMMAND_S,
        check=False,
        env={**os.environ, **realm.environment()},
    )
    told = "\n".join(one["sentence"] for one in json.loads(ended.stdout)["results"] if one["code"] == "MM0202")
    assert "accepts the login of mirror (GSSAPI)" in told
    assert "accepts the login of the ticket (GSSAPI)" in told
