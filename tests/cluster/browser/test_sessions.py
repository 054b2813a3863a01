"""Who is let in by the page, what ends a session, and what another page can do with it: nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.browser.scene import PASSWORD, TOKENS, Scene
from tests.cluster.browser.tabs import OTHER_NAME, Tab, opened, port_of
from tests.cluster.running import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OpenTab = Callable[[str], Tab]


def test_a_user_logs_in_with_a_password_and_out_again(scene: Scene, open_tab: OpenTab) -> None:
    tab = open_tab(scene.address)
    tab.log_in(PASSWORD, user="paula")
    tab.page.get_by_role("banner").get_by_text("paula (reader)").wait_for()
    tab.press("log out")
    tab.button("Log in").wait_for()
    assert tab.fetch("/v1/flows")[0] == 401
    assert scene.flow not in tab.page.content(), "nothing is shown any more"


def test_the_page_asks_to_log_in_again_when_the_worker_has_ended_the_session(scene: Scene, open_tab: OpenTab) -> None:
    tab = open_tab(scene.address)
    tab.log_in(TOKENS["guest"])
    tab.go("topics", flow=scene.flow)
    wait_until(lambda: tab.table(f"Topics of {scene.flow}"), "topics are shown")
    new = "canary-anew-" + "6" * 40
    scene.write_users({**TOKENS, "guest": new})
    try:
        tab.button("Log in").wait_for()
        assert scene.orders not in tab.page.content(), "nothing is shown any more"
        tab.log_in(new)
        wait_until(lambda: tab.table(f"Topics of {scene.flow}"), "the same view is shown again")
    finally:
        scene.write_users(TOKENS)


def test_a_user_of_some_flows_sees_these_and_no_events_even_with_the_id_of_one(scene: Scene, open_tab: OpenTab) -> None:
    """Ids of events say how far topics were read. They are no rights: the one of an admin opens nothing to others."""
    last_id, _ = scene.event_told("")
    tab = open_tab(scene.address)
    tab.page.goto(f"{scene.address}/")
    stolen = {"Last-Event-ID": last_id}
    assert tab.fetch("/v1/events", headers=stolen)[0] == 401, "no session"
    tab.log_in(TOKENS["sam"])
    assert tab.page.get_by_role("navigation", name="Views").get_by_role("link").all_inner_texts() == [
        "Flows",
        "Topics",
        "Groups",
        "Gaps",
        "Recovery",
        "Settings",
    ]
    assert tab.fetch("/v1/events", headers=stolen)[0] == 403
    assert tab.fetch(f"/v1/events?since={last_id}")[0] == 403
    tab.go("events")
    tab.see("You may not see events")


# Other pages in the same browser


@contextmanager
def strange_page() -> Iterator[tuple[str, list[str]]]:
    """Serve a page of another origin, which is of the same site: cookies do not know ports.

    Yields its address, and the cookies that the browser has sent to it.
    """
    cookies: list[str] = []

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>strange</title>")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Empty)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", cookies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


ASK: Final = """async ([url, method, mode, headers]) => {
    try {
        const answer = await fetch(url, { method, mode, headers, credentials: "include" });
        return [answer.type, answer.status, await answer.text()];
    } catch (error) { return ["refused", 0, String(error)]; }
}"""

SHOW: Final = """url => {
    const frame = document.createElement("iframe");
    frame.src = url;
    document.body.append(frame);
}"""


def test_another_origin_can_do_nothing_with_the_session(scene: Scene, browser: Browser) -> None:
    """The browser sends it the cookie: it goes to all ports of a host."""
    with opened(browser, scene.address) as tab, strange_page() as (strange, cookies):
        tab.log_in(TOKENS["olga"])
        status, _ = tab.fetch("/v1/flows")
        assert status == 200
        answers: list[Any] = []
        other = tab.context.new_page()
        other.goto(strange)
        other.on("response", lambda response: answers.append(response))  # noqa: PLW0108  (it takes no method)
        path = f"{scene.address}/v1/flows/{scene.flow}/topics/{scene.orders}"
        asked = (
            (f"{scene.address}/v1/flows", "GET", "cors", {}),
            (f"{scene.address}/v1/flows", "GET", "no-cors", {}),
            (f"{scene.address}/session", "GET", "no-cors", {}),
            (f"{scene.address}/v1/flows", "GET", "cors", {"Mm2py-Page": "1"}),
            (f"{path}/restart", "POST", "no-cors", {}),
            (f"{path}/pause", "PUT", "cors", {}),
            (f"{path}/pause", "PUT", "cors", {"Mm2py-Page": "1"}),
        )
        for one in asked:
            kind, status, text = other.evaluate(ASK, list(one))
            assert (status, text if kind == "opaque" else "") == (0, ""), (one, kind, status, text)
        answers = [one for one in answers if one.url.startswith(scene.address)]
        assert answers and {one.status for one in answers} <= {401, 403}, [(one.url, one.status) for one in answers]
        assert any(f"mm2py-{port_of(scene.address)}=" in one for one in cookies), "the browser did send the cookie"
        assert scene.topic_told(scene.orders)["is_copied"]
        assert not scene.run.events("partitions.restarted", topic=scene.orders, user="olga")
        said: list[str] = []
        other.on("console", lambda message: said.append(message.text))
        other.evaluate(SHOW, f"{scene.address}/")
        wait_until(
            lambda: other.evaluate("frames.length") == 1 and any("frame-ancestors" in one for one in said),
            "the browser does not show the page within another one",
        )


def test_another_name_of_the_machine_is_refused(scene: Scene, browser: Browser) -> None:
    """A page of another site may let its name point to this machine; then the worker's answers would be its own."""
    with opened(browser, scene.address) as tab:
        for path in ("/", "/v1/flows", f"/v1/flows/{scene.flow}/topics"):
            answer = tab.page.goto(f"http://{OTHER_NAME}:{port_of(scene.address)}{path}")
            assert answer is not None and answer.status == 403, path
