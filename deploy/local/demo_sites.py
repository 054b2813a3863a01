"""The demo of several data centres: six clusters at three sites with long links between them, all flows from one file.

``python -m deploy.local.demo_sites`` starts two clusters at each site, workers near them, and traffic on every cluster.
A setting is changed over REST at one site, a site is cut off and comes back, and another one is rebuilt from nothing.
In the end every topic of every flow is compared, record by record. The exit code is 0 only if all are exact. It leaves
no process, no network and no file. MirrorMaker 2 has no counterpart; the file is of the kind that its README describes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from deploy.local.boot_image import boot_image
from deploy.local.demo import FAILED, INTERRUPTED, install_handlers, parse_seconds, run_directory
from deploy.local.demo_samples import TrafficOfNow
from deploy.local.demo_verdict import conclude
from deploy.local.errors import StarterError
from deploy.local.jars import jar_directory
from deploy.local.kafka import KafkaCluster, start_clusters
from deploy.local.site_flows import CLUSTERS, FLOWS, SITES, clusters_of, copies_of, own_topic, site_of
from deploy.local.sites import LinkedSites
from mm2py.flow import ClusterAlias, Flow
from mm2py.rest_token import read_token
from tests.checker.check import Report, check_copy
from tests.checker.dump import DumpFailed, Reader
from tests.checker.load import Load, LoadFailed, create_topic
from tests.cluster.kafka_client import record_count
from tests.cluster.rest.serving import asked
from tests.cluster.running import PATIENCE, Event, Mm2py, pause, wait_until

FILE: Final = Path(__file__).parents[1] / "sites" / "mm2.properties"
ROUND_TRIPS_MS: Final = {("west", "east"): 40.0, ("west", "north"): 80.0, ("east", "north"): 120.0}
PARTITIONS: Final = 3
PER_SECOND: Final = 30
HEAP: Final = "300m"
OUTAGE_S: Final = 120.0
"""Longer than each session and each time-out of a request: 30 seconds at most."""
ASKED_EVERY_S: Final = 0.5
CAUGHT_UP_S: Final = 120.0 * PATIENCE
CUT_OFF: Final = "west"
REBUILT: Final = "north"
CHANGED_AT: Final = "east"
CHANGED: Final = Flow(ClusterAlias("east-1"), ClusterAlias("west-1"))
ADDED: Final = "audit.log"
"""A topic that the file does not select, because its name has a dot."""
HELPER: Final = "east, for west-1"
"""A worker that is far from its target: it stands in for the workers of west."""
OWN_LINES: Final = """
# of the demo: REST at any free port, for itself
listeners = http://127.0.0.1:0
admin.listeners =
rest.token.file = {directory}/rest.token
# and less beside the topics that are compared: all brokers run on one machine
emit.heartbeats.interval.seconds = 10
offset.storage.partitions = 5
status.storage.partitions = 1
"""


class SiteStepFailed(StarterError):
    """A step did not end as it should."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="This is a fault of mm2py: the logs of its workers tell more.")


class SitesDemo:
    """One run: the steps are methods, in their order. Run them inside the network ``sites.near``."""

    def __init__(
        self, sites: LinkedSites, clusters: Sequence[KafkaCluster], directory: Path, say: Callable[[str], None]
    ) -> None:
        self.sites = sites
        self.clusters = {ClusterAlias(cluster.name): cluster for cluster in clusters}
        self.workers: dict[str, Mm2py] = {}
        """The running workers, by what they are called here."""
        self._say = say
        self.directory = directory
        self._file = directory / "mm2.properties"
        text = FILE.read_text() + OWN_LINES.format(directory=directory)
        for alias in CLUSTERS:
            there = self.clusters.get(alias)
            address = f"{sites.place(site_of(alias)).address}:9" if there is None else there.bootstrap
            text = text.replace(f"= {alias}:9092", f"= {address}")
        self._file.write_text(text)
        present = [site for site in SITES if clusters_of(site)[0] in self.clusters]
        self.flows = [flow for flow in FLOWS if {flow.source, flow.target} <= set(self.clusters)]
        """Those whose clusters are both there."""
        self._copies: dict[Flow, dict[str, str]] = {flow: dict(copies_of(flow, present)) for flow in self.flows}
        self._starts: dict[tuple[Flow, str], dict[int, int]] = {}
        """Where a copy of a rebuilt source begins, by partition. What is before it was compared before."""
        self._before_rebuild: list[Report] = []
        self._lost: dict[tuple[ClusterAlias, str], int] = {}
        """How many records the topics of a rebuilt site had, of which other sites keep the copies."""

    def __enter__(self) -> SitesDemo:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            worker.kill()

    # Steps

    def make_topics(self, aliases: Sequence[ClusterAlias]) -> None:
        for alias in aliases:
            create_topic(self.clusters[alias].bootstrap, own_topic(alias), PARTITIONS)

    @contextmanager
    def traffic(self, aliases: Sequence[ClusterAlias], producer: int) -> Iterator[None]:
        """Write on these clusters, at a steady rate, until the block ends."""
        with ExitStack() as loads:
            for number, alias in enumerate(aliases):
                traffic = TrafficOfNow(100 * producer + number, PARTITIONS, producer=producer)
                bootstrap = self.clusters[alias].bootstrap
                loads.enter_context(
                    Load(bootstrap, own_topic(alias), traffic, codecs=["lz4"], per_second=PER_SECOND).in_background()
                )
            yield

    def start_workers(self, *names: str) -> None:
        """Start the worker of a site, near its clusters; or the helper."""
        for name in names:
            at, aliases = (CHANGED_AT, [CHANGED.target]) if name == HELPER else (name, clusters_of(name))
            run = Mm2py(self._file, clusters=aliases)
            with self.sites.place(at).entered():
                run.start()
            self.workers[name] = run

    def stop_workers(self, *names: str) -> None:
        """Let workers drain and stop. Raises: SiteStepFailed, one did not end in order."""
        for name in names:
            code = self.workers.pop(name).terminate()
            if code:
                raise SiteStepFailed(f"The worker of {name} ended with exit code {code}.")

    def await_copies(self) -> None:
        """Wait until every copy has what clients have written, in the order in which a record passes the flows.

        Offsets are counted, and fences take some in a copy: it may lack a few records yet. ``compare`` waits for these.
        """
        for flow, topics in self._copies.items():
            for topic, remote in topics.items():
                alias, name = origin = self._origin(flow, topic)
                goal = self._count(alias, name)
                if site_of(alias) != site_of(flow.target):
                    goal += self._lost.get(origin, 0)
                copied = functools.partial(self._has, flow.target, remote, goal)
                self._wait(copied, f"{flow} has copied to {remote} what {name} on {alias} has, {goal:,} records")

    def change_setting(self) -> None:
        """Change a setting at one site, over REST, and see every worker of the flow follow it."""
        create_topic(self.clusters[CHANGED.source].bootstrap, ADDED, PARTITIONS)
        Load(self.clusters[CHANGED.source].bootstrap, ADDED, TrafficOfNow(7, PARTITIONS), codecs=["zstd"]).run(
            records=1_000
        )
        helper = self.workers[HELPER]
        with self.sites.place(CHANGED_AT).entered(), contextlib.closing(asked(helper, str(CHANGED))) as rest:
            path = f"{rest.connector()}/config"
            topics = f"{rest.told('GET', path, 200)['topics']}, {ADDED.replace('.', '[.]')}"
            proof = {"Authorization": f"Bearer {read_token(self.directory / 'rest.token').reveal()}"}
            rest.told(
                "PATCH", f"{path}?reason=west needs the audit of east", 200, json={"topics": topics}, headers=proof
            )
        for name in (HELPER, site_of(CHANGED.target)):
            found = self.workers[name].wait_for_event("config.changed", flow=str(CHANGED))
            self._say(f"    the worker of {name}: {CHANGED} has version {found.get('version')} of its settings")
        self._copies[CHANGED][ADDED] = f"{CHANGED.source}.{ADDED}"
        back = Flow(CHANGED.target, clusters_of(site_of(CHANGED.target))[1])
        self._copies[back][f"{CHANGED.source}.{ADDED}"] = f"{back.source}.{CHANGED.source}.{ADDED}"

    def cut_off(self, site: str, seconds: float) -> None:
        """Let no packet between a site and the others pass for so long.

        Raises:
            SiteStepFailed: a record came through in the second half, or a flow within the site did not go on.
        """
        ends = {flow: (site_of(flow.source), site_of(flow.target)) for flow in self.flows}
        inside = [flow for flow, (one, other) in ends.items() if one == other == site]
        across = [flow for flow, (one, other) in ends.items() if one != other and site in {one, other}]
        self.sites.cut_off(site)
        pause(seconds / 2, "what was under way when the link was cut is written")
        before = {flow: self._count_of(flow) for flow in [*inside, *across]}
        waiting = [flow for flow in across if self._lag_of(flow) > 0]
        self._say(f"    {site} is cut off: {sum(map(self._lag_of, waiting)):,} records wait in {len(waiting)} flows")
        pause(seconds / 2, "a site is cut off")
        if passed := [str(flow) for flow in across if self._count_of(flow) != before[flow]]:
            raise SiteStepFailed(f"Although {site} was cut off, {', '.join(passed)} went on.")
        if stood := [str(flow) for flow in inside if self._count_of(flow) == before[flow]]:
            raise SiteStepFailed(f"While {site} was cut off, {', '.join(stood)} stood still, which stays within it.")
        self.sites.bring_back(site)

    def rebuild(self, site: str) -> None:
        """Stop a site's worker, compare what came from there, and rebuild both clusters from nothing.

        No record may be on its way out of the site. The workers of other sites go on meanwhile.
        """
        own = [alias for alias in self.clusters if site_of(alias) == site]
        self.stop_workers(site)
        out = [flow for flow in self.flows if flow.source in own and flow.target not in own]
        self._before_rebuild = self.compare(out, wait_s=CAUGHT_UP_S)
        self._lost = {(alias, own_topic(alias)): self._count(alias, own_topic(alias)) for alias in own}
        for flow in out:
            for topic, remote in self._copies[flow].items():
                self._starts[flow, topic] = self._ends(flow.target, remote)
        for alias in own:
            self.clusters[alias].rebuild()
        self.make_topics(own)

    def go_on_after_rebuild(self, site: str) -> None:
        """Start the site's worker, then all others again: until then they refuse flows from a cluster with a new id."""
        self.start_workers(site)
        others = [name for name in self.workers if name != site]
        out = [flow for flow in self.flows if site_of(flow.source) == site != site_of(flow.target)]
        for flow in out:
            worker = self.workers[site_of(flow.target)]
            refused = worker.wait_for_event("flow.refused", flow=str(flow), deadline_s=CAUGHT_UP_S)
            self._say(f"    the worker of {site_of(flow.target)}: {refused['why']}")
        self.stop_workers(*others)
        self._say("    So all other workers stop in order, and start again.")
        self.start_workers(*others)
        for flow in out:
            for topic in self._copies[flow]:
                found = self._named(flow, topic)
                self._say(f"    {flow}: source.recreated {topic}, {found['done']}: {found['why']}")

    def _named(self, flow: Flow, topic: str) -> Event:
        """Return what a worker has logged of a source that was rebuilt."""
        found: list[Event] = []

        def is_named() -> bool:
            for worker in self.workers.values():
                found.extend(worker.events("source.recreated", flow=str(flow), topic=topic))
            return bool(found)

        self._wait(is_named, f"{flow} names that {topic} was recreated")
        return found[0]

    def compare_all(self) -> list[Report]:
        """Compare each topic of each flow with its copy; with what was compared before a source was rebuilt."""
        self.await_copies()
        return [*self._before_rebuild, *self.compare(self.flows, wait_s=CAUGHT_UP_S)]

    def compare(self, flows: Sequence[Flow], *, wait_s: float = 0.0) -> list[Report]:
        """Compare the topics of these flows; partitions that lag are given so much time."""
        return [
            check_copy(
                self.clusters[flow.source].bootstrap,
                self.clusters[flow.target].bootstrap,
                {topic: remote},
                target_starts={(topic, number): at for number, at in self._starts.get((flow, topic), {}).items()},
                wait_s=wait_s,
            )
            for flow in flows
            for topic, remote in self._copies[flow].items()
        ]

    # Looking

    @staticmethod
    def _origin(flow: Flow, topic: str) -> tuple[ClusterAlias, str]:
        """Return the cluster on which clients write a topic, and its name there."""
        name = ADDED if topic.endswith(ADDED) else topic.rpartition(".")[2]
        way = topic.removesuffix(name).rstrip(".")
        return ClusterAlias(way.rpartition(".")[2]) if way else flow.source, name

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, deadline_s=CAUGHT_UP_S)

    def _count(self, alias: ClusterAlias, topic: str) -> int:
        return record_count(self.clusters[alias], topic, range(PARTITIONS))

    def _has(self, alias: ClusterAlias, topic: str, records: int) -> bool:
        if self._count(alias, topic) >= records:
            return True
        pause(ASKED_EVERY_S, "all brokers run on one machine, and each question costs them time")
        return False

    def _count_of(self, flow: Flow) -> int:
        return sum(self._count(flow.target, remote) for remote in self._copies[flow].values())

    def _lag_of(self, flow: Flow) -> int:
        return sum(self._count(flow.source, topic) for topic in self._copies[flow]) - self._count_of(flow)

    def _ends(self, alias: ClusterAlias, topic: str) -> dict[int, int]:
        with Reader(self.clusters[alias].bootstrap, read_committed=False) as reader:
            return {number: at.end for number, at in reader.bounds(topic, range(PARTITIONS)).items()}


def play(demo: SitesDemo, outage_s: float, say: Callable[[str], None]) -> tuple[list[str], int]:
    """Run all steps. Returns the lines of the comparison, and the exit code.

    Raises:
        SiteStepFailed, AssertionError: a step did not end as it should.
        StarterError, LoadFailed, DumpFailed, KafkaException: a cluster cannot do its work.
    """
    staying = [alias for alias in CLUSTERS if site_of(alias) != REBUILT]
    demo.make_topics(CLUSTERS)
    with demo.traffic(staying, producer=1):
        with demo.traffic(clusters_of(REBUILT), producer=2):
            say(f"A worker starts at each site, and one more in {HELPER}.")
            demo.start_workers(*SITES, HELPER)
            demo.await_copies()
            say(f"All {len(FLOWS)} flows copy. A setting of {CHANGED} is changed over REST at {CHANGED_AT}.")
            demo.change_setting()
            demo.await_copies()
            say(f"{CUT_OFF} is cut off from the other sites for {outage_s:g} s. Clients go on writing everywhere.")
            demo.cut_off(CUT_OFF, outage_s)
            say(f"{CUT_OFF} is back.")
            demo.await_copies()
            say("What had waited is copied.")
        demo.await_copies()
        say(f"{REBUILT} is rebuilt from nothing: its worker stops, both clusters lose all data and get new ids.")
        demo.rebuild(REBUILT)
        with demo.traffic(clusters_of(REBUILT), producer=3):
            demo.go_on_after_rebuild(REBUILT)
            demo.await_copies()
            say(f"{REBUILT} has all copies again, and what is new there is copied.")
    say("The traffic ends. Comparing each topic of each flow with its copy, record by record:")
    return conclude(demo.compare_all())


@contextmanager
def started(say: Callable[[str], None], aliases: Sequence[ClusterAlias] = CLUSTERS) -> Iterator[SitesDemo]:
    """Start the sites and these clusters; this thread is near all of them meanwhile. Nothing is left at the end.

    Raises:
        MissingTool, NoNamespaces: the machine or the user lacks what it takes; the error says what.
    """
    with LinkedSites(ROUND_TRIPS_MS) as sites:
        boot_image(jar_directory())  # outside of the networks, from which no registry is reached
        with sites.near.entered():
            clusters = [KafkaCluster(alias, network=sites.place(site_of(alias)), heap=HEAP) for alias in aliases]
            with start_clusters(clusters), run_directory() as made, SitesDemo(sites, clusters, made, say) as demo:
                yield demo


def run(outage_s: float) -> int:
    """Run the whole demo. Returns the exit code."""
    begun_s = time.monotonic()

    def say(text: str) -> None:
        print(text if text.startswith(" ") else f"{time.monotonic() - begun_s:4.0f} s  {text}", flush=True)

    links = ", ".join(f"{one} to {other} {ms:g} ms" for (one, other), ms in ROUND_TRIPS_MS.items())
    say(f"Starting two Kafka clusters at each of {len(SITES)} sites. There and back it is {links}.")
    with started(say) as demo:
        tempfile.tempdir = str(demo.directory)  # it is removed even if a second Ctrl-C ends this process at once
        try:
            lines, code = play(demo, outage_s, say)
            print("\n".join(lines), flush=True)
            demo.stop_workers(*list(demo.workers))
            return code
        except (SiteStepFailed, AssertionError) as error:
            print(f"demo-sites: {error}", file=sys.stderr)
            for name, worker in demo.workers.items():
                print(f"The worker of {name}. {worker.tail()}", file=sys.stderr)
            return FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m deploy.local.demo_sites``."""
    parser = argparse.ArgumentParser(prog="make demo-sites", description="Three sites, mirrored from one file.")
    parser.add_argument(
        "--outage", type=parse_seconds, default=OUTAGE_S, metavar="SECONDS", help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    install_handlers()
    try:
        return run(options.outage)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except (StarterError, LoadFailed, DumpFailed, KafkaException) as error:
        print(f"demo-sites: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
