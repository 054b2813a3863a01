"""The settings of a group of workers: how it elects its leader, how long a silent worker is waited for.

They belong to a target cluster, like ``mm2py.group``. Two of them are MirrorMaker 2's, of its worker into that cluster,
with other defaults; those of ZooKeeper have the names that Kafka's brokers had for theirs, where they had one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mm2py.config import security_keys
from mm2py.config.key import Key, Table, table_of
from mm2py.config.kinds import BadValue, Ensemble, boolean, ensemble, integer, java_trim, topic_name_part
from mm2py.config.settings import Election
from mm2py.secret import Secret


def election(text: str) -> Election:
    match java_trim(text):
        case "log":
            return "log"
        case "zookeeper":
            return "zookeeper"
    raise BadValue("not one of log, zookeeper")


def digest(text: str) -> Secret:
    user, colon, password = java_trim(text).partition(":")
    if not user or not colon or not password:
        raise BadValue("not user:password")
    return Secret(java_trim(text))


GROUP = Key("mm2py.group", topic_name_part, "mm2py")
SESSION_TIMEOUT = Key("session.timeout.ms", integer(100), 3000)
"""10000 in MirrorMaker 2."""
HEARTBEAT_INTERVAL = Key("heartbeat.interval.ms", integer(10), 500)
"""3000 in MirrorMaker 2."""
LEADER_ELECTION: Key[Election] = Key("leader.election", election, "log")

ZOOKEEPER_CONNECT: Key[Ensemble | None] = Key("zookeeper.connect", ensemble, None)
ZOOKEEPER_DIGEST: Key[Secret | None] = Key("zookeeper.auth.digest", digest, None)
ZOOKEEPER_SET_ACL = Key("zookeeper.set.acl", boolean, True)
ZOOKEEPER_SSL = Key("zookeeper.ssl.client.enable", boolean, False)
ZOOKEEPER_TLS: Table = table_of(
    replace(key, name=f"zookeeper.{key.name}")
    for key in (
        security_keys.TRUSTSTORE_TYPE,
        security_keys.TRUSTSTORE_LOCATION,
        security_keys.TRUSTSTORE_PASSWORD,
        security_keys.TRUSTSTORE_CERTIFICATES,
        security_keys.KEYSTORE_TYPE,
        security_keys.KEYSTORE_LOCATION,
        security_keys.KEYSTORE_PASSWORD,
        security_keys.KEYSTORE_CERTIFICATE_CHAIN,
        security_keys.KEYSTORE_KEY,
        security_keys.KEY_PASSWORD,
        security_keys.ENDPOINT_IDENTIFICATION,
        security_keys.ENABLED_PROTOCOLS,
        security_keys.CIPHER_SUITES,
    )
)

ZOOKEEPER: Table = table_of(
    ZOOKEEPER_CONNECT, ZOOKEEPER_DIGEST, ZOOKEEPER_SET_ACL, ZOOKEEPER_SSL, ZOOKEEPER_TLS.values()
)
OWN: tuple[Key[Any], ...] = (GROUP, LEADER_ELECTION, *ZOOKEEPER.values())
"""Only mm2py has them: at the top, or for a target."""
WORKER: tuple[Key[int], ...] = (SESSION_TIMEOUT, HEARTBEAT_INTERVAL)
"""For a target only, as in MirrorMaker 2."""
