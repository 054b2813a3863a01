"""What the tests of the web page share: a browser, and one worker with users. All its files run in one process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.browser import chromium, running_browser
from deploy.local.errors import MissingTool
from deploy.local.kafka import KafkaCluster
from mm2py_rest.built_page import INDEX, NOT_BUILT, BuiltPage
from tests.cluster.browser.scene import Scene
from tests.cluster.browser.tabs import OTHER_NAME, Tab, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def missing(what: str) -> None:
    """CI has all that these tests take. Elsewhere the end of the run names what is missing."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def can_browse() -> None:
    """Names what is missing, before anything else is started."""
    if BuiltPage().file(INDEX) is None:
        missing(NOT_BUILT)
    try:
        chromium()
    except MissingTool as error:
        missing(str(error))


@pytest.fixture(scope="module")
def browser(can_browse: None) -> Iterator[Browser]:
    """One browser a file: while Playwright is open its event loop runs, and no test of this process can run its own."""
    # a page elsewhere may let its name point to this machine
    with running_browser(f"--host-resolver-rules=MAP {OTHER_NAME} 127.0.0.1") as running:
        yield running
    asyncio.run(asyncio.sleep(0))  # the next file may


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[Callable[[str], Tab]]:
    """Opens tabs, each like a browser of its own. At the end, none of them has asked another origin for anything."""
    with ExitStack() as stack:
        tabs: list[Tab] = []

        def open_one(address: str) -> Tab:
            tabs.append(stack.enter_context(opened(browser, address)))
            return tabs[-1]

        yield open_one
        for tab in tabs:
            tab.check()


@pytest.fixture(scope="session")
def scene(
    can_browse: None,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    """A worker with users that all tests of this folder share. A test leaves it as it has found it."""
    directory: Path = tmp_path_factory.mktemp("browser")
    with Scene(source_cluster, target_cluster, directory) as found:
        yield found
