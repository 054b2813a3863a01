"""A tab that shows the web page: found in it is what a screen reader finds, by role and name.

Each tab is like a browser of its own: no other tab has its cookies. What it asked for and what went wrong in it is
written down from its first request on, and judged by ``Tab.check``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from tests.cluster.running import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Locator, Page

OTHER_NAME: Final = "elsewhere.example"
"""The browser of these tests takes it for a name of this machine."""
SCREEN: Final = {"width": 1600, "height": 1000}
"""Wide enough for all columns."""
REFUSED_BY_POLICY: Final = ("Content Security Policy", "TrustedHTML", "TrustedScript", "Trusted Type")
"""What the console says of what the page may not do."""


@dataclass
class Tab:
    """A tab of a browser."""

    page: Page
    address: str
    """Of the worker, without a slash at its end."""
    asked: list[str] = field(default_factory=list)
    """The URLs of all requests."""
    wrong: list[str] = field(default_factory=list)
    """Errors of the page's script, windows that it has opened, and what its policy has kept it from."""

    @property
    def context(self) -> BrowserContext:
        return self.page.context

    def check(self) -> None:
        """Whatever the tab has shown, it asked only its own worker, and no script but its own has run."""
        assert self.asked, "nothing was asked for"
        strange = [url for url in self.asked if not url.startswith(f"{self.address}/")]
        assert not strange, strange
        assert not self.wrong, self.wrong

    # Where it is

    def go(self, view: str = "flows", **more: str) -> None:
        """Load the page with a view of it, and wait until it is there."""
        query = urlencode({"view": view, **more}, quote_via=quote)
        self.page.goto(f"{self.address}/?{query}")
        self.see_heading()

    def see_heading(self) -> None:
        """Wait until a view is there."""
        self.page.get_by_role("heading", level=1).first.wait_for(state="attached")

    def log_in(self, token: str, user: str = "") -> None:
        """Fill in the form, which the page shows already or is about to show, and wait until it lets in."""
        if self.page.url == "about:blank":
            self.page.goto(f"{self.address}/")
        if user:
            self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("navigation", name="Views").wait_for()

    # What it shows

    def text(self) -> str:
        """Return the text of the view."""
        return self.page.get_by_role("main").inner_text()

    def see(self, text: str) -> None:
        """Wait until the view has this text."""
        wait_until(lambda: text in self.text(), f"the page says {text!r}")

    def table(self, label: str) -> list[dict[str, str]]:
        """Return the rows of a table by the headings of its columns; none if it is not shown."""
        lines = self.page.get_by_role("region", name=label, exact=True).get_by_role("row").all_inner_texts()
        if not lines:
            return []
        first, *others = ([cell.strip() for cell in line.split("\t")] for line in lines)
        headings = [one.rstrip(" ↑↓") for one in first]
        return [dict(zip(headings, row, strict=True)) for row in others]

    def spoken(self) -> list[str]:
        """Return what a screen reader is told without being asked."""
        return self.page.get_by_role("status").all_inner_texts()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def verbs(self) -> set[str]:
        """Return what the buttons of the view offer to do: those that open a window end with three dots."""
        names = self.page.get_by_role("main").get_by_role("button").all_inner_texts()
        return {name.removesuffix(" …") for name in names if name.endswith("…")}

    def press(self, name: str) -> None:
        self.button(name).click()

    @property
    def window(self) -> Locator:
        """What asks for confirmation."""
        return self.page.get_by_role("dialog")

    def see_no_window(self) -> None:
        """Wait until it is gone, and not only hidden: then the page knows that it was closed."""
        self.page.locator("dialog").wait_for(state="detached")

    def press_in_window(self, name: str) -> None:
        self.window.get_by_role("button", name=name, exact=True).click()

    # What it may do beyond what the page does

    def fetch(self, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Any:
        """Send a request from within the page, by its session; return the status and the text of the answer."""
        ours = {"Mm2py-Page": "1", **(headers or {})}
        return tuple(self.page.evaluate(FETCH, [path, method, ours]))


FETCH: Final = """async ([path, method, headers]) => {
    const answer = await fetch(path, { method, headers, cache: "no-store" });
    const is_stream = (answer.headers.get("Content-Type") ?? "").startsWith("text/event-stream");
    return [answer.status, is_stream ? "" : await answer.text()];
}"""


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Tab]:
    """Open a tab, which is empty at first."""
    context = browser.new_context(viewport=SCREEN)
    context.set_default_timeout(DEADLINE_S * 1000)
    tab = Tab(context.new_page(), address)

    def on_dialog(dialog: Dialog) -> None:
        tab.wrong.append(f"a window of a script: {dialog.message}")
        dialog.dismiss()

    def on_console(message: ConsoleMessage) -> None:
        if any(part in message.text for part in REFUSED_BY_POLICY):
            tab.wrong.append(message.text)

    context.on("request", lambda request: tab.asked.append(request.url))
    tab.page.on("dialog", on_dialog)
    tab.page.on("pageerror", lambda error: tab.wrong.append(str(error)))
    tab.page.on("console", on_console)
    try:
        yield tab
    finally:
        context.close()


def port_of(address: str) -> int:
    port = urlsplit(address).port
    assert port is not None
    return port
