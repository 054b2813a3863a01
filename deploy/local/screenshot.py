"""The picture of the web page in README.md: ``python -m deploy.local.screenshot``, as ``make screenshot`` runs it.

It starts the demo, lets it run until the charts have something to show, and takes the first view as users of a light
theme see it. What the picture shows is what real clusters and a real worker have told.
"""

from __future__ import annotations

import argparse
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.local.browser import running_browser
from deploy.local.errors import MissingTool

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "docs/page.png"
BYTES_MOST: Final = 150_000
SCREEN: Final = {"width": 1200, "height": 760}
RUNS_S: Final = 120.0
STARTS_S: Final = 120.0
ADDRESS: Final = re.compile(r"http://\S+#once=\S+")


class NoPicture(Exception):
    """There is nothing to take a picture of; the message says why."""


@contextmanager
def running_demo() -> Iterator[str]:
    """Run the demo while the context is open, and yield the address of its page. Raises: NoPicture."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "deploy.local.demo"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    found: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None  # noqa: S101
        for line in process.stdout:
            if match := ADDRESS.search(line):
                found.put(match[0])
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        try:
            address = found.get(timeout=STARTS_S)
        except queue.Empty:
            address = None
        if address is None:
            raise NoPicture("The demo serves no page.")
        yield address
    finally:
        process.terminate()
        process.wait()


def take(file: Path, runs_s: float) -> int:
    """Write the picture of a demo that has run for so long; return its bytes. Raises: NoPicture, MissingTool."""
    with running_browser() as browser, running_demo() as address:
        page = browser.new_page(viewport=SCREEN, color_scheme="light")
        page.goto(address)
        page.get_by_role("article").first.wait_for()
        time.sleep(runs_s)
        picture: bytes = page.screenshot()
    if len(picture) > BYTES_MOST:
        raise NoPicture(f"The picture has {len(picture):,} bytes; at most {BYTES_MOST:,} are allowed.")
    file.write_bytes(picture)
    return len(picture)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m deploy.local.screenshot``."""
    parser = argparse.ArgumentParser(prog="make screenshot", description="A picture of the demo's web page.")
    parser.add_argument("--seconds", type=float, default=RUNS_S, help="how long the demo runs before")
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    try:
        size = take(options.file, options.seconds)
    except (NoPicture, MissingTool) as error:
        print(f"screenshot: {error}", file=sys.stderr)
        return 1
    print(f"{options.file}: {size:,} bytes.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
