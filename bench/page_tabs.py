"""The web page in tabs of a browser, as one more kind of clients of a worker's REST: ``bench/rest_clients.py``.

    python -m bench.page_tabs TABS

Lines on standard input and the JSON at the end are those of ``bench.rest_clients``. After ``on`` all tabs are seen:
they ask and draw. After ``off`` they are hidden. Besides, the JSON has the JS heap of a tab, about once a second
while tabs are seen and when they are hidden, and the CPU seconds of the browser.
In production that runs on other machines.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from bench.processes import cpu_s
from deploy.local.browser import running_browser

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

SAMPLE_EVERY_S: Final = 1.0
SCREEN: Final = {"width": 1280, "height": 900}
ENTRIES_MOST: Final = 100_000
HIDDEN_AT_FIRST: Final = f"""(() => {{
    let isSeen = false;
    Object.defineProperty(document, "visibilityState", {{ get: () => (isSeen ? "visible" : "hidden") }});
    window.benchShow = (given) => {{
        isSeen = given;
        document.dispatchEvent(new Event("visibilitychange"));
    }};
    performance.setResourceTimingBufferSize({ENTRIES_MOST});
}})();"""
"""All tabs of a browser without a window are seen. These are when the bench says so."""
ANSWERS: Final = """() => performance.getEntriesByType("resource")
    .filter(one => one.name.includes("/v1/") && !one.name.includes("/v1/events"))
    .map(one => [one.duration, one.responseStatus])"""


class Tabs:
    """Tabs that show the first view, and their results."""

    def __init__(self, pages: list[Page]) -> None:
        self.heap_mb: list[float] = []
        """The JS heap of a tab, the median of all, in MB (10^6 bytes)."""
        self.late_ms: list[float] = []
        self._pages = pages
        self._sessions: list[CDPSession] = [page.context.new_cdp_session(page) for page in pages]

    def open(self, address: str) -> float:
        """Load the page in all tabs; return after how many ms the first one has shown a flow."""
        begun_s = time.monotonic()
        first = self._pages[0]
        first.goto(address)
        first.evaluate("benchShow(true)")
        first.get_by_role("article").first.wait_for()
        first_ms = (time.monotonic() - begun_s) * 1_000
        for page in self._pages[1:]:
            page.goto(address)
        self.show(is_seen=False)
        return first_ms

    def show(self, *, is_seen: bool) -> None:
        """Show or hide all tabs."""
        for page in self._pages:
            page.evaluate(f"benchShow({'true' if is_seen else 'false'})")

    def sample(self) -> None:
        """Note the heap."""
        used = [session.send("Runtime.getHeapUsage")["usedSize"] for session in self._sessions]
        self.heap_mb.append(statistics.median(used) / 1e6)

    def answers(self) -> list[tuple[float, int]]:
        """Return the latency of each answer in ms, and its status."""
        return [(latency, status) for page in self._pages for latency, status in page.evaluate(ANSWERS)]


def run(count: int) -> dict[str, Any]:
    """Run the tabs until standard input closes, and return their results."""
    # each tab has a process of its own, so that its heap is its own
    with running_browser(f"--renderer-process-limit={2 * count}") as browser:
        context = browser.new_context(viewport=SCREEN)
        context.add_init_script(HIDDEN_AT_FIRST)
        tabs = Tabs([context.new_page() for _ in range(count)])
        first_ms = tabs.open(f"http://127.0.0.1:{int(_line())}/")
        is_seen = False
        while True:
            begun_s = time.monotonic()
            if select.select([sys.stdin], [], [], SAMPLE_EVERY_S if is_seen else None)[0]:
                line = _line()
                if line != "on":
                    tabs.sample()
                if not line:
                    break
                is_seen = line == "on"
                tabs.show(is_seen=is_seen)
            else:
                tabs.late_ms.append((time.monotonic() - begun_s - SAMPLE_EVERY_S) * 1_000)
                tabs.sample()
        answers = tabs.answers()
        return {
            "first_ms": first_ms,
            "latencies_ms": [latency for latency, status in answers if status == 200],
            "failed": [f"status {status}" for _, status in answers if status not in (0, 200)],
            "events": 0,
            "late_ms": tabs.late_ms or [0.0],
            "heap_mb": tabs.heap_mb,
            "browser_cpu_s": cpu_s(os.getpid()),
        }


def _line() -> str:
    """Read a line without reading ahead, so that ``select`` knows of the next one; empty: there is none any more."""
    found = b""
    while not found.endswith(b"\n") and (byte := os.read(sys.stdin.fileno(), 1)):
        found += byte
    return found.decode().strip()


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))), flush=True)
