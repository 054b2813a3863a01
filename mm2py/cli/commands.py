"""The table of commands: a new command needs a row here and a module that has ``run``. Pure.

MirrorMaker 2 has one command, which runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One row."""

    name: str
    """One word, or two, as ``dr cutover``."""
    module: str
    """Its ``run`` takes the arguments after the name, and returns the exit code. It is loaded when it is called."""
    heading: str
    """The heading under which the help lists it."""
    summary: str
    examples: tuple[str, ...]
    """Lines for ``--help``."""


LOOK: Final = "Look"
CHANGE: Final = "Change and repair"
RECOVER: Final = "Recover"
SPARK: Final = "With Spark"
SET_UP: Final = "Set up"

COMMANDS: Final = (
    CommandRow(
        "status",
        "mm2py.cli.status",
        LOOK,
        "show how it stands with workers, flows and lag; works when none runs",
        ("mm2py status mm2.properties", "mm2py status mm2.properties --watch 5"),
    ),
    CommandRow(
        "top",
        "mm2py.cli.top",
        LOOK,
        "watch flows, the worst topics, workers and events; pause and resume by key",
        ("mm2py top mm2.properties", "mm2py top mm2.properties --once"),
    ),
    CommandRow(
        "open",
        "mm2py.cli.open_page",
        LOOK,
        "print the address of a worker's web page; without users it logs in, once",
        ("mm2py open mm2.properties",),
    ),
    CommandRow(
        "health",
        "mm2py.cli.health",
        LOOK,
        "ask the worker of this machine whether it is ready, or lives",
        ("mm2py health mm2.properties", "mm2py health mm2.properties --live"),
    ),
    CommandRow(
        "check",
        "mm2py.cli.check",
        LOOK,
        "check that the clusters give what the file needs, before anything runs",
        ("mm2py check mm2.properties --pre", "mm2py check mm2.properties --json"),
    ),
    CommandRow(
        "why",
        "mm2py.cli.why",
        LOOK,
        "say what decides whether a topic, a partition or a group is replicated",
        (
            "mm2py why mm2.properties 'A->B' --topic orders",
            "mm2py why mm2.properties 'A->B' --partition orders/3",
            "mm2py why mm2.properties 'A->B' --topic orders --at 6h",
            "mm2py why mm2.properties 'A->B' --group billing",
        ),
    ),
    CommandRow(
        "config",
        "mm2py.cli.config",
        LOOK,
        "list every setting that counts, with the line of the file that decides",
        ("mm2py config mm2.properties", "mm2py config mm2.properties --flow 'A->B' --changed"),
    ),
    CommandRow(
        "groups",
        "mm2py.cli.groups",
        LOOK,
        "show where consumer groups may go on on the target; move one there or back",
        (
            "mm2py groups mm2.properties 'A->B'",
            "mm2py groups mm2.properties 'A->B' --group billing",
            "mm2py groups mm2.properties 'A->B' --move billing --plan",
            "mm2py groups mm2.properties 'A->B' --move billing --yes --reason 'ticket 4711'",
        ),
    ),
    CommandRow(
        "preview",
        "mm2py.cli.preview",
        LOOK,
        "show what the transforms of a flow make of the last records of a topic",
        ("mm2py preview mm2.properties 'A->B' --topic orders --records 20",),
    ),
    CommandRow(
        "translate",
        "mm2py.cli.translate",
        LOOK,
        "tell where an offset of one log is in the other, both ways",
        (
            "mm2py translate mm2.properties 'A->B' --topic orders --partition 0 --offset 1200",
            "mm2py translate mm2.properties 'A->B' --topic A.orders --partition 0 --offset 1187 --reverse",
        ),
    ),
    CommandRow(
        "history",
        "mm2py.cli.history",
        LOOK,
        "show who changed settings, paused or restarted what, when and why",
        ("mm2py history mm2.properties", "mm2py history mm2.properties 'A->B' --since 24h"),
    ),
    CommandRow(
        "plan",
        "mm2py.cli.plan",
        LOOK,
        "say what would start, be created, changed or refused, before anything runs",
        ("mm2py plan mm2.properties", "mm2py plan mm2.properties -o next.plan"),
    ),
    CommandRow(
        "apply",
        "mm2py.cli.apply",
        CHANGE,
        "change the settings of flows that run; prints the difference first",
        (
            "mm2py apply mm2.properties --dry-run",
            "mm2py apply mm2.properties --yes --reason 'ticket 4711'",
            "mm2py apply next.plan",
        ),
    ),
    CommandRow(
        "pause",
        "mm2py.cli.pause",
        CHANGE,
        "stop reading a flow, or some topics or partitions of it",
        (
            "mm2py pause mm2.properties 'A->B' --topic orders --reason 'ticket 4711'",
            "mm2py pause mm2.properties 'A->B' --partition orders/0-3,7",
            "mm2py pause mm2.properties 'A->B'",
        ),
    ),
    CommandRow(
        "resume",
        "mm2py.cli.resume",
        CHANGE,
        "let go on what was paused, at the next record",
        ("mm2py resume mm2.properties 'A->B' --topic orders", "mm2py resume mm2.properties 'A->B'"),
    ),
    CommandRow(
        "gaps",
        "mm2py.cli.gaps",
        CHANGE,
        "list what could not be copied and waits for you, and let it go on",
        ("mm2py gaps mm2.properties", "mm2py gaps mm2.properties accept 'A->B:orders:3'"),
    ),
    CommandRow(
        "replay",
        "mm2py.cli.replay",
        CHANGE,
        "take records out of quarantine",
        (
            "mm2py replay mm2.properties 'A->B:orders' --export refused",
            "mm2py replay mm2.properties 'A->B:orders' --append --yes",
        ),
    ),
    CommandRow(
        "uninstall",
        "mm2py.cli.uninstall",
        CHANGE,
        "remove what a flow that is gone has left on its clusters; its copies stay",
        (
            "mm2py uninstall mm2.properties 'A->B' --plan",
            "mm2py uninstall mm2.properties 'A->B' --export kept --yes",
            "mm2py uninstall mm2.properties 'A->B' --remote-topic A.orders --yes",
        ),
    ),
    CommandRow(
        "rebuild-ledger",
        "mm2py.cli.rebuild_ledger",
        CHANGE,
        "write what the ledger of offsets lacks, after comparing both logs",
        (
            "mm2py rebuild-ledger mm2.properties 'A->B' --dry-run",
            "mm2py rebuild-ledger mm2.properties 'A->B' --topic orders",
        ),
    ),
    CommandRow(
        "dr check",
        "mm2py.cli.dr_check",
        RECOVER,
        "say if a flow is ready for cutover and failover, and what would be lost",
        ("mm2py dr check mm2.properties 'A->B'", "mm2py dr check mm2.properties 'A->B' --json"),
    ),
    CommandRow(
        "dr fence",
        "mm2py.cli.dr_fence",
        RECOVER,
        "stop the producers of topics on the source, and verify that nobody writes",
        (
            "mm2py dr fence mm2.properties 'A->B' --plan",
            "mm2py dr fence mm2.properties 'A->B' --topics orders --principal User:app --yes",
            "mm2py dr fence mm2.properties 'A->B' --hook-fence 'close-listener prod' --yes",
        ),
    ),
    CommandRow(
        "dr unfence",
        "mm2py.cli.dr_unfence",
        RECOVER,
        "give back what a fence of producers has changed, and nothing else",
        ("mm2py dr unfence mm2.properties 'A->B'",),
    ),
    CommandRow(
        "dr turn",
        "mm2py.cli.dr_turn",
        RECOVER,
        "of two flows that lead back and forth, turn one on and the other off",
        (
            "mm2py dr turn mm2.properties 'B->A' --plan",
            "mm2py dr turn mm2.properties 'B->A' --reason 'A is moved' --yes",
            "mm2py dr turn mm2.properties 'B->A' --off --yes",
        ),
    ),
    CommandRow(
        "dr cutover",
        "mm2py.cli.dr_cutover",
        RECOVER,
        "move producers and groups to the other cluster, and nothing is lost",
        (
            "mm2py dr cutover mm2.properties 'A->B' --plan",
            "mm2py dr cutover mm2.properties 'A->B' --hook-switch 'switch-dns prod' --yes",
            "mm2py dr cutover mm2.properties 'A->B' --topics orders --reverse-window 30m",
        ),
    ),
    CommandRow(
        "dr failover",
        "mm2py.cli.dr_failover",
        RECOVER,
        "the source is lost: let producers and groups go on on the target",
        (
            "mm2py dr failover mm2.properties 'A->B' --plan",
            "mm2py dr failover mm2.properties 'A->B' --accept-loss --hook-switch 'switch-dns prod' --yes",
            "mm2py dr failover mm2.properties 'A->B' --to safe --accept-loss --yes",
        ),
    ),
    CommandRow(
        "dr rollback",
        "mm2py.cli.dr_rollback",
        RECOVER,
        "undo a cutover: the same the other way round",
        (
            "mm2py dr rollback mm2.properties 'A->B' --plan",
            "mm2py dr rollback mm2.properties 'A->B' --hook-switch 'switch-dns prod' --yes",
        ),
    ),
    CommandRow(
        "dr complete",
        "mm2py.cli.dr_complete",
        RECOVER,
        "keep a cutover: it can be undone no more",
        ("mm2py dr complete mm2.properties 'A->B' --plan", "mm2py dr complete mm2.properties 'A->B' --yes"),
    ),
    CommandRow(
        "dr extras",
        "mm2py.cli.dr_extras",
        RECOVER,
        "list and settle what only the lost cluster has",
        (
            "mm2py dr extras mm2.properties 'A->B'",
            "mm2py dr extras mm2.properties 'A->B' --export /tmp/extras --leave-all --yes",
        ),
    ),
    CommandRow(
        "dr reinstate",
        "mm2py.cli.dr_reinstate",
        RECOVER,
        "the lost cluster is back: settle what only it has, copy to it",
        (
            "mm2py dr reinstate mm2.properties 'A->B' --plan",
            "mm2py dr reinstate mm2.properties 'A->B' --replay --yes",
        ),
    ),
    CommandRow(
        "dr failback",
        "mm2py.cli.dr_failback",
        RECOVER,
        "move producers and groups back to the reinstated cluster",
        ("mm2py dr failback mm2.properties 'A->B' --hook-switch 'switch-dns prod' --yes",),
    ),
    CommandRow(
        "dr drill",
        "mm2py.cli.dr_drill",
        RECOVER,
        "prove that every group would go on at the exact record, and move nothing",
        (
            "mm2py dr drill mm2.properties 'A->B' --plan",
            "mm2py dr drill mm2.properties 'A->B' --yes --report drills/",
            "mm2py dr drill mm2.properties 'A->B' --groups billing --to safe --verify-all",
        ),
    ),
    CommandRow(
        "dr history",
        "mm2py.cli.dr_history",
        RECOVER,
        "print all recoveries of a pair of clusters, step by step",
        ("mm2py dr history mm2.properties 'A->B'", "mm2py dr history mm2.properties 'A->B' --json"),
    ),
    CommandRow(
        "relocate spark",
        "mm2py.cli.relocate_spark",
        RECOVER,
        "let a stopped query of Spark go on on the other cluster, with its state",
        (
            "mm2py relocate spark mm2.properties /srv/checkpoints/orders --flow 'A->B' --plan",
            "mm2py relocate spark mm2.properties /srv/checkpoints/orders --flow 'A->B'",
        ),
    ),
    CommandRow(
        "backfill",
        "mm2py.cli.backfill",
        SPARK,
        "copy the history of topics, then let the workers go on behind it",
        (
            "mm2py backfill mm2.properties 'A->B' --topics orders --dry-run",
            "mm2py backfill mm2.properties 'A->B' --topics orders --master spark://host:7077 --yes",
        ),
    ),
    CommandRow(
        "verify",
        "mm2py.cli.verify",
        SPARK,
        "compare the copies with their source, range by range; --local: without Spark",
        (
            "mm2py verify mm2.properties 'A->B' --topics orders --local",
            "mm2py verify mm2.properties 'A->B' --certificate certificate.txt",
        ),
    ),
    CommandRow(
        "mirror",
        "mm2py.cli.mirror",
        SET_UP,
        "mirror topics without a file; takes the options of older mirrors as well",
        (
            "mm2py mirror --from old:9092 --to new:9092 --topics 'orders.*' --identity",
            "mm2py mirror --from a:9092 --prefix dc1. --from b:9092 --prefix dc2. --to c:9092 --topics '.*'",
            "mm2py mirror --consumer.config c.properties --producer.config p.properties --whitelist '.*'",
        ),
    ),
    CommandRow(
        "takeover",
        "mm2py.cli.takeover",
        SET_UP,
        "take over from MirrorMaker 2, Kafka Connect, Strimzi or MirrorMaker 1",
        (
            "mm2py takeover mm2.properties",
            "mm2py takeover new.properties --from-connect http://connect:8083",
            "mm2py takeover new.properties --from-strimzi mirror.yaml",
            "mm2py takeover new.properties --from-mm1 consumer.properties producer.properties --topics '.*'",
            "mm2py takeover new.properties --from-connect http://connect:8083 --plan",
            "mm2py takeover new.properties --from-connect http://connect:8083 --yes",
        ),
    ),
    CommandRow(
        "handback",
        "mm2py.cli.handback",
        SET_UP,
        "hand a flow back to the mirror that ran before, which repeats nothing",
        (
            "mm2py handback mm2.properties 'A->B' --plan",
            "mm2py handback mm2.properties 'A->B' --to-connect http://connect:8083 --yes",
            "mm2py handback mm2.properties 'A->B' --to-strimzi mirror.yaml --yes",
        ),
    ),
    CommandRow(
        "hash-password",
        "mm2py.cli.hash_password",
        SET_UP,
        "print the hash of a password or a token, for rest.users.file",
        ("mm2py hash-password", "openssl rand -hex 32 | tee token | mm2py hash-password --token"),
    ),
    CommandRow(
        "completion",
        "mm2py.cli.completion",
        SET_UP,
        "print the script by which a shell completes commands and options",
        ("mm2py completion bash", "mm2py completion fish"),
    ),
)
HELP: Final = "help"
"""``mm2py help``, and ``mm2py help NAME``, which is ``mm2py NAME --help``."""


def command_named(name: str, commands: Sequence[CommandRow] = COMMANDS) -> CommandRow:
    """Return a row. Raises: KeyError, there is none."""
    for command in commands:
        if command.name == name:
            return command
    raise KeyError(name)


def find(
    arguments: Sequence[str], commands: Sequence[CommandRow] = COMMANDS
) -> tuple[CommandRow, Sequence[str]] | tuple[None, Sequence[str]]:
    """Return the command that a command line begins with, and what follows its name; None: it begins with none.

    Raises:
        ConfigError: the first word begins commands of two words, and none of them has this second word.
    """
    by_words = {tuple(command.name.split()): command for command in commands}
    for count in (2, 1):
        command = by_words.get(tuple(arguments[:count]))
        if command is not None:
            return command, arguments[count:]
    first = arguments[0] if arguments else ""
    seconds = [words[1] for words in by_words if len(words) > 1 and words[0] == first]
    if seconds:
        raise ConfigError(
            f"mm2py {first} takes one of {', '.join(seconds)} behind it.",
            remedy=f"Try mm2py {first} {seconds[0]} --help, or mm2py help.",
        )
    return None, arguments


def overview(commands: Sequence[CommandRow] = COMMANDS) -> str:
    """Return the list of all commands, under their headings."""
    width = max(len(command.name) for command in commands)
    lines: list[str] = []
    for heading in dict.fromkeys(command.heading for command in commands):
        lines += ["", f"{heading}:"]
        lines += [f"  mm2py {one.name:{width}}  {one.summary}" for one in commands if one.heading == heading]
    lines += ["", "mm2py help NAME, or mm2py NAME --help, shows arguments, exit codes and examples."]
    return "\n".join(lines[1:])


def examples_of(command: CommandRow) -> str:
    """Return the examples at the end of the help of one command."""
    return "\n".join(["examples:", *(f"  {line}" for line in command.examples)])
