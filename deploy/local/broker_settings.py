"""The properties of one broker: small defaults for a laptop, overridden by the caller's settings. Pure.

In rising precedence: the defaults here, the cluster's settings, the node's settings. Node id, ports, voters and
directories belong to the starter: a caller who sets one gets an error.
"""

from collections.abc import Mapping

Setting = str | int | float | bool

CONTROLLER = "CONTROLLER"
INTERNAL = "INTERNAL"
STARTERS_OWN = frozenset(
    {
        *("process.roles", "node.id", "broker.id", "controller.quorum.voters", "controller.listener.names"),
        *("listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name"),
        *("security.inter.broker.protocol", "log.dir", "log.dirs", "metadata.log.dir"),
    }
)
COMPACT_AT_ONCE: Mapping[str, Setting] = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.001,
    "log.initial.task.delay.ms": 200,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 500,
}
"""Settings for tests that wait for compaction or retention; topics still need a small ``segment.ms``."""


def all_listeners(listeners: Mapping[str, str]) -> dict[str, str]:
    """Return the listeners of a broker, name to protocol, with a plaintext one among them.

    Brokers talk to each other in plaintext, and so does the starter when it asks whether they are ready: without a
    plaintext listener, ``INTERNAL`` is added. With an authorizer its principal is ``User:ANONYMOUS``.

    Raises:
        ValueError: there is no listener, or one has the name of the controller's.
    """
    if not listeners or CONTROLLER in listeners:
        raise ValueError(f"listeners need at least one name, and {CONTROLLER} is taken")
    return dict(listeners) if "PLAINTEXT" in listeners.values() else {**listeners, INTERNAL: "PLAINTEXT"}


def plaintext_listener(listeners: Mapping[str, str]) -> str:
    """Return the name of the first plaintext listener of ``all_listeners``."""
    return next(name for name, protocol in listeners.items() if protocol == "PLAINTEXT")


def small_defaults(nodes: int) -> dict[str, Setting]:
    """Return the settings with which a cluster of that many nodes starts fast and can hold its internal topics."""
    copies = min(3, nodes)
    return {
        "auto.create.topics.enable": False,
        "broker.heartbeat.interval.ms": 1_000,  # with the next line, an idle node takes half the CPU: tests run twenty
        "metadata.max.idle.interval.ms": 0,  # no empty metadata record twice a second
        "broker.session.timeout.ms": 3_000,  # a killed broker may not return before its last session expires
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": 8_388_608,  # Kafka's own default takes a quarter of our heap
        "offsets.topic.num.partitions": 5,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": 5,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": min(2, copies),
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": min(2, copies),
    }


def broker_properties(
    node_id: int,
    *,
    host: str,
    ports: Mapping[int, Mapping[str, int]],
    listeners: Mapping[str, str],
    log_dir: str,
    settings: Mapping[str, Setting],
) -> dict[str, Setting]:
    """Return all properties of one combined broker and controller.

    Args:
        node_id: which of the nodes in ``ports``.
        ports: for each node of the cluster, listener name to port, ``CONTROLLER`` included.
        listeners: name to security protocol, as ``all_listeners`` returns them.
        settings: the caller's; they win over the small defaults.
    Raises:
        ValueError: ``settings`` holds a property that belongs to the starter.
    """
    refused = sorted(STARTERS_OWN & settings.keys())
    if refused:
        raise ValueError(f"{', '.join(refused)}: the starter sets these; use its arguments nodes and listeners")
    own = ports[node_id]
    client_addresses = ",".join(f"{name}://{host}:{own[name]}" for name in listeners)
    return {
        **small_defaults(len(ports)),
        **settings,
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": ",".join(f"{node}@{host}:{names[CONTROLLER]}" for node, names in ports.items()),
        "controller.listener.names": CONTROLLER,
        "listeners": f"{client_addresses},{CONTROLLER}://{host}:{own[CONTROLLER]}",
        "advertised.listeners": client_addresses,
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {**listeners, CONTROLLER: "PLAINTEXT"}.items()
        ),
        "inter.broker.listener.name": plaintext_listener(listeners),
        "log.dirs": log_dir,
    }


def render_properties(properties: Mapping[str, Setting]) -> str:
    """Return a file that ``java.util.Properties`` reads back as the same strings; booleans in lower case."""
    return "".join(f"{_escape(key, key=True)}={_escape(_text(value))}\n" for key, value in properties.items())


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(text: str, *, key: bool = False) -> str:
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        special |= {" ": "\\ ", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
    escaped = "".join(special.get(character) or _ascii(character) for character in text)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped  # a leading blank would be skipped


def _ascii(character: str) -> str:
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
