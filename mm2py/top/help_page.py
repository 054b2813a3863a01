"""What the key ``?`` shows. docs/top.md says more."""

from __future__ import annotations

from typing import Final

HELP_LINES: Final = (
    "Keys",
    "  up down, j k   select a row; page up and down, home, end",
    "  enter          the partitions of the topic, and what mm2py why says of it",
    "  g  !           the consumer groups of its flow; all problems in full",
    "  esc            back; in the list of topics: no filter",
    "  p  r           pause or resume the topic, or the partition; it asks",
    "  P  R           pause or resume the whole flow; it asks",
    "  s              sort: urgent first, lag, growth, rate, name",
    "  /              only topics with this text in name, flow, owners or state",
    "  space          look at the clusters now",
    "  q, Ctrl-C      quit; the exit code is that of mm2py status",
    "Columns",
    "  LAG            records that wait; + more, not known of all partitions",
    "  AGE            of the oldest record that waits",
    "  GROWTH         by how many records in a second the lag grows; - it shrinks",
    "  CAUGHT UP      in which time nothing waits, at this rate",
    "  RATE           records that are copied in a second, of the last ten seconds",
    "  OWNERS         workers, and how many partitions each copies",
    "  STATE          why it is not copied, or how its lag moves; ! waits for you",
    "  ?              in a column: not known",
)
