"""A headless Chromium, driven by Playwright: the tests of the web page, its picture and its bench look through it.

It is the one that the machine has. The browser that Playwright would fetch comes from elsewhere than PyPI.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from deploy.local.errors import MissingTool

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COMMANDS: Final = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return the path of the browser. Raises: MissingTool, it or Playwright is not installed."""
    if importlib.util.find_spec("playwright") is None:
        raise MissingTool("Playwright is not installed.", remedy="Run `make venv`.")
    found = next(filter(None, map(shutil.which, COMMANDS)), None)
    if found is None:
        raise MissingTool("There is no Chromium here.", remedy="Debian: apt-get update && apt-get install chromium")
    return found


@contextmanager
def running_browser(*arguments: str) -> Iterator[Browser]:
    """Run it while the context is open, with further arguments for its command line. Raises: MissingTool."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(arguments))
        try:
            yield browser
        finally:
            browser.close()
