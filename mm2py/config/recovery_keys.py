"""The settings of recoveries: rows of the table."""

from __future__ import annotations

import shlex
from typing import Final

from mm2py.config.kinds import BadValue, string
from mm2py.config.row import BY_CLUSTER_FAMILY, BY_FAMILY, Key, Section


def command_words(text: str) -> tuple[str, ...]:
    """The words of a command, split as a shell would; there is at least one."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise BadValue("no command: a quote is open") from None
    if not words:
        raise BadValue("empty; write a program and its arguments")
    return tuple(words)


RECOVERY = Section(
    "recovery, only of mm2py",
    "What `mm2py dr` reads, and the recovery over REST. It is never stored, and no secret or command of it is shown.",
)
CREDENTIALS: Final[Key[str]] = RECOVERY.row(
    "dr.",
    string,
    "",
    readers=BY_CLUSTER_FAMILY,
    lines=(
        "##A.dr.security.protocol = SASL_SSL",
        "##A.dr.sasl.mechanism = SCRAM-SHA-512",
        "##A.dr.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \\",
        '##    username="recovery" password="...";',
    ),
    text=(
        "Credentials of recoveries at a cluster: `security.protocol`, and any `ssl.` and `sasl.` setting. Those that"
        " are not there are the flow's. Without any, recoveries connect as the flow does. REST has the verbs of a"
        " recovery only where both clusters have such a line. See docs/security.md."
    ),
)
HOOKS: Final[Key[tuple[str, ...]]] = RECOVERY.row(
    "dr.hook.",
    command_words,
    (),
    readers=BY_FAMILY,
    lines=("##dr.hook.dns = /opt/mm2py/hooks/dns-record --zone example.org --name kafka A=a.example. B=b.example.",),
    text=(
        "A command that recoveries call by this name: a program and its arguments, run without a shell. Over REST"
        " hooks are called by name only. deploy/hooks has some."
    ),
)
