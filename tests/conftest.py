"""What tests of several folders share: the seeds of random walks; real clusters, started for a test that asks for one.

A walk is a test that takes a seed. ``@pytest.mark.walk(range(4))`` names the few seeds of the ordinary suite, and
``--seeds 1000-1009`` replaces them. Property tests likewise: few examples and always the same in the ordinary suite,
many and drawn from ``--hypothesis-seed`` in the profile ``long``. ``make simulate`` runs both with new seeds.
"""

import gc
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests import event_loops
from tests.cluster.patience import PATIENCE

if TYPE_CHECKING:
    from deploy.local.kafka import KafkaCluster

settings.register_profile("ordinary", max_examples=30, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=200, deadline=None, database=None)
settings.load_profile("ordinary")  # the long one: --hypothesis-profile long

ROOT = Path(__file__).parent
HEAP = "1g"
"""Of the brokers that all tests share: over the whole run they get thousands of topics and groups."""
LONGEST_FIRST = tuple(
    f"test_{name}.py"
    for name in (
        *("reinstate", "failover", "cutover_waits", "cutover", "drill", "failover_after_cutover", "recovery_rest"),
        *("writer", "data_source", "backfill", "verify"),
        *("group", "group_offsets", "exact_offsets", "failover_drill", "mm2_positions", "repack", "starter", "crash"),
        "accessibility",
        *("quarantine", "demo", "offsets_parity", "client_parity", "configs_parity", "control_log"),
        *("least_rights", "isolation", "security", "gaps", "own_connector"),
        *("checker_mutants", "fetch_sessions", "refusals", "proxy_faults", "heartbeats", "scale", "topic_sync"),
        *("zookeeper", "bad_input", "foreign_writers", "limits", "remote_topics", "policies_parity", "apply"),
        *("client", "checker_on_brokers", "heartbeats_parity", "status", "transactions_model_matches_broker"),
        *("broker_model_matches_broker", "v1", "access", "prometheus", "rest", "rest_of_workers"),
    )
)
"""Of the tests on real brokers, which a worker of pytest-xdist takes file by file (make test)."""

IN_ONE_PROCESS = ("tests/cluster/spark/", "tests/cluster/browser/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--save-compat", action="store_true", help="write what make compat finds into docs/results")
    parser.addoption("--seeds", type=seeds_of, help="the seeds of all random walks, in place of their few: 1000-1009")


def seeds_of(text: str) -> range:
    """Return the seeds that ``7`` or ``7-12`` names, the last one included."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("timeout") is None:  # pytest-timeout asks for it next; processes of pytest-xdist are given it
        config.option.timeout = float(config.getini("timeout")) * PATIENCE
    config.pluginmanager.register(event_loops)
    config.addinivalue_line("markers", "compat: against older brokers; has a make target of its own")
    config.addinivalue_line("markers", "one_python: need not run on a second version of Python (make test-unit-3.13)")
    config.addinivalue_line("markers", "walk(seeds): a random walk; make simulate runs it with other seeds")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest begin first: whoever gets a long one last keeps everybody waiting.

    On real processes a coroutine that nobody awaits is warned of only: it is found when garbage is collected, and then
    another test would fail, by luck.
    """
    rank = {name: at for at, name in enumerate(LONGEST_FIRST)}
    for item in items:
        if item.path.is_relative_to(ROOT / "cluster") or item.path.is_relative_to(ROOT / "parity"):
            item.add_marker(pytest.mark.filterwarnings("default:(?s).*was never awaited"))
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All files of Spark go to one worker of pytest-xdist: each other one would start a JVM for Spark as well.

    Those of the web page go to one likewise, with its browser and its worker.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next(filter(nodeid.startswith, IN_ONE_PROCESS), "") or super()._split_scope(nodeid)

    return ByFileOrFolder(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """No garbage is collected while a failure is put into words.

    A test that fails may leave coroutines that cannot end. Where they are collected while pytest parses the source of
    the failed line, Python 3.11 raises a SystemError (AST constructor recursion depth mismatch), and all is over.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    walk = metafunc.definition.get_closest_marker("walk")
    if walk is not None:
        metafunc.parametrize("seed", metafunc.config.getoption("seeds") or walk.args[0])


@pytest.fixture(scope="session", autouse=True)
def own_state_folder() -> Iterator[None]:
    """Workers under test keep the token of REST in a folder of this run, and not in that of the user who tests."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="mm2py-state-") as folder:
        patch.setenv("XDG_STATE_HOME", folder)
        patch.delenv("RUNTIME_DIRECTORY", raising=False)
        yield


@pytest.fixture(scope="session")
def cluster_pair() -> "Iterator[tuple[KafkaCluster, KafkaCluster]]":
    """A source and a target cluster of one node each, for the whole run: topics and groups need names of their own."""
    from deploy.local.kafka import start_clusters
    from tests.cluster.shared_cluster import SharedCluster

    with start_clusters([SharedCluster("source", heap=HEAP), SharedCluster("target", heap=HEAP)]) as (source, target):
        yield source, target


@pytest.fixture(scope="session")
def source_cluster(cluster_pair: "tuple[KafkaCluster, KafkaCluster]") -> "KafkaCluster":
    """The source cluster that all tests share. A test that kills or freezes brokers takes ``make_cluster``."""
    return cluster_pair[0]


@pytest.fixture(scope="session")
def target_cluster(cluster_pair: "tuple[KafkaCluster, KafkaCluster]") -> "KafkaCluster":
    """The target cluster that all tests share. A test that kills or freezes brokers takes ``make_cluster``."""
    return cluster_pair[1]


@pytest.fixture
def make_cluster() -> "Iterator[Callable[..., KafkaCluster]]":
    """Starts clusters of one's own, with the arguments of ``KafkaCluster``; they end with the test."""
    from deploy.local.kafka import KafkaCluster

    made: list[KafkaCluster] = []

    def make(name: str = "own", **arguments: Any) -> KafkaCluster:
        cluster = KafkaCluster(name, **arguments)
        made.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.close()
