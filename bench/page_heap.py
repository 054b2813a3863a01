"""Whether the web page stays flat: half an hour of a demo in two tabs; ``python -m bench.page_heap``.

One tab shows the first view, as a screen on a wall does. The other one goes to the next view every ten seconds. Once a
minute garbage is collected, and heap, nodes and listeners of each tab are noted. A page that keeps what it has shown
grows in all three.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from bench.flatness import CERTAINTY, FEWEST_SAMPLES, WARM_UP_SHARE, Finding, Trend, trend
from bench.machine import commit, hardware
from bench.pages import RESULTS, facts_of, first_lines
from deploy.local.browser import running_browser
from deploy.local.errors import StarterError
from deploy.local.screenshot import SCREEN, NoPicture, running_demo

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

MINUTES: Final = 30.0
SAMPLE_EVERY_S: Final = 60.0
NEXT_VIEW_S: Final = 10.0
MOST_PER_HOUR: Final = {"heap_mb": 2.0, "nodes": 400.0, "listeners": 100.0}
"""An hour of charts and events comes in the first hour: that much a page may grow until it is full."""


@dataclass(frozen=True, slots=True)
class TabSample:
    """A tab at one moment, after garbage was collected."""

    at_s: float
    heap_mb: float
    """The JS heap in use, in MB (10^6 bytes)."""
    nodes: int
    """Of the document, also such as are not shown any more and are held by something."""
    listeners: int


class WatchedTab:
    """A tab and what it came to."""

    def __init__(self, name: str, page: Page) -> None:
        self.name = name
        self.page = page
        self.samples: list[TabSample] = []
        self._session: CDPSession = page.context.new_cdp_session(page)

    def sample(self, at_s: float) -> None:
        """Collect garbage and note what is left."""
        self._session.send("HeapProfiler.collectGarbage")
        heap = self._session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
        found = self._session.send("Memory.getDOMCounters")
        self.samples.append(TabSample(at_s, heap, found["nodes"], found["jsEventListeners"]))

    def next_view(self) -> None:
        """Go to the view behind the one that is shown, as a user does."""
        views = self.page.get_by_role("navigation", name="Views").get_by_role("link")
        shown = [views.nth(number).get_attribute("aria-current") for number in range(views.count())]
        views.nth((shown.index("page") + 1) % len(shown)).click()


def findings(samples: Sequence[TabSample]) -> list[Finding]:
    """Judge a tab. Too few samples are not flat. Pure."""
    kept = [
        one for one in samples if one.at_s >= samples[0].at_s + WARM_UP_SHARE * (samples[-1].at_s - samples[0].at_s)
    ]
    if len(kept) < FEWEST_SAMPLES:
        return [Finding(flat=False, text=f"{len(kept)} samples after the warm-up are too few to judge")]
    found = []
    for name, most in MOST_PER_HOUR.items():
        values = [float(getattr(one, name)) for one in kept]
        line: Trend = trend([(one.at_s, value) for one, value in zip(kept, values, strict=True)])
        found.append(
            Finding(
                flat=line.per_hour - CERTAINTY * line.error_per_hour <= most,
                text=f"{name} {values[0]:,.1f} to {values[-1]:,.1f}, highest {max(values):,.1f}, trend"
                f" {line.per_hour:+,.1f} an hour (standard error {line.error_per_hour:,.1f}, limit {most:g})",
            )
        )
    return found


def watch(address: str, minutes: float) -> list[WatchedTab]:
    """Watch both tabs for so long. The address of the demo works once; the session is shared by the tabs."""
    with running_browser() as browser:
        context = browser.new_context(viewport=SCREEN)
        tabs = [WatchedTab(name, context.new_page()) for name in ("the first view", "one view after the other")]
        for tab in tabs:
            tab.page.goto(address if tab is tabs[0] else address.split("#", maxsplit=1)[0])
            tab.page.get_by_role("article").first.wait_for()
        begun_s = time.monotonic()
        sampled_s = -SAMPLE_EVERY_S
        while (now_s := time.monotonic() - begun_s) < minutes * 60:
            if now_s - sampled_s >= SAMPLE_EVERY_S:
                sampled_s = now_s
                for tab in tabs:
                    tab.sample(now_s)
            tabs[1].next_view()
            tabs[1].page.wait_for_timeout(NEXT_VIEW_S * 1_000)
    return tabs


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m bench.page_heap``; exit code 1 if something grows."""
    parser = argparse.ArgumentParser(prog="make bench-page-heap", description="Does the web page stay flat?")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--save", action="store_true", help="write docs/results/page-heap-DATE.md and .json")
    options = parser.parse_args(arguments)
    machine = hardware()
    try:
        with running_demo() as address:
            tabs = watch(address, options.minutes)
    except (StarterError, NoPicture) as error:
        print(f"page-heap: {error}", file=sys.stderr)
        return 1
    facts = facts_of(commit(), machine)
    lines = first_lines(f"The web page for {options.minutes:g} minutes", facts)
    lines += ["The demo runs beside it. Garbage is collected before each sample, once a minute.", ""]
    judged = {tab.name: findings(tab.samples) for tab in tabs}
    for name, found in judged.items():
        lines += [f"## {name[0].upper()}{name[1:]}", ""]
        lines += [f"* {'flat' if one.flat else '**NOT FLAT**'}: {one.text}" for one in found] + [""]
    page = "\n".join(lines)
    print(page)
    if options.save:
        path = RESULTS / f"page-heap-{facts['date']}"
        runs = {tab.name: [asdict(one) for one in tab.samples] for tab in tabs}
        path.with_suffix(".json").write_text(json.dumps({**facts, "tabs": runs}, indent=1) + "\n")
        path.with_suffix(".md").write_text(page)
    return 0 if all(one.flat for found in judged.values() for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
