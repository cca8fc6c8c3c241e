"""A real Chromium without a screen, driven by its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PHONE, DESK = 390, 1280
# How many shapes each chart's picture has, and which elements reach beyond the screen: to be asked of a tab.
DRAWN = "[...document.querySelectorAll('.canvas')].map(place => place.querySelectorAll('svg path').length)"
OVERFLOWING = """
[...document.querySelectorAll('body *')]
  .filter(one => !one.closest('.scroll, svg, .skip, thead'))
  .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.outerHTML.slice(0, 200))
"""
PATIENCE = 60.0  # seconds for one answer, on a machine that does other things too
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",  # it reads our own file alone, and root has no sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-pipe",
)
_KEYS = {
    "Tab": {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
    "Enter": {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
}


def program() -> str | None:
    """Where Chromium is, `LATDOCTOR_CHROMIUM` first."""
    named = os.environ.get("LATDOCTOR_CHROMIUM", "")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A Chromium; absent locally it skips, absent in CI it fails."""
    found = program()
    if found is None:
        reason = "no Chromium is installed (apt-get install chromium, or LATDOCTOR_CHROMIUM=PATH)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    one = Browser(found, profile)
    try:
        yield one
    finally:
        one.close()


@dataclass
class Tab:
    """One page. `told` are the events that it sent: its console, its requests, its log."""

    browser: Browser
    session: str
    told: list[dict[str, Any]] = field(default_factory=list)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self.browser.call(method, arguments, self)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, waited for where it is a promise."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, path: Path) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=path.as_uri())
        self.browser.wait_for("Page.loadEventFired", self)

    def shape(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Another width or light, and the page drawn anew for it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        # What follows a resize is drawn a moment later: once two frames and the page's own delay have passed.
        self.ask("new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 250))")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **_KEYS[key])

    def picture(self) -> bytes:
        """A PNG of the whole page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def printed(self) -> bytes:
        """The page as PDF, on A4."""
        found = self.call("Page.printToPDF", printBackground=False, paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(found["data"])

    def events(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.told if event["method"] == method]


def _pipe() -> tuple[int, int]:
    """A pipe whose descriptors are none of those that Chromium wants to have."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Browser:
    """The process and its two pipes: each message is JSON that ends in a NUL."""

    def __init__(self, path: str, profile: Path) -> None:
        asks_out, self._asks = _pipe()
        self._answers, answers_in = _pipe()
        # It reads from descriptor 3 and writes to 4.
        command = f'exec "$@" 3<&{asks_out} 4>&{answers_in}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", path, *_SWITCHES, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(asks_out, answers_in),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(asks_out)
        os.close(answers_in)
        self._count, self._rest = 0, b""
        self._tabs: dict[str, Tab] = {}

    def tab(self) -> Tab:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        return tab

    def call(self, method: str, arguments: Mapping[str, Any], tab: Tab | None = None) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": dict(arguments)}
        if tab is not None:
            message["sessionId"] = tab.session
        os.write(self._asks, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found
        raise AssertionError("Chromium has gone")

    def wait_for(self, method: str, tab: Tab) -> None:
        if tab.events(method):
            return
        for message in self._messages():
            if message.get("method") == method and message.get("sessionId") == tab.session:
                return

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Everything that it says from now on; what a page tells is kept with its tab."""
        deadline = time.monotonic() + PATIENCE
        while True:
            while b"\0" in self._rest:
                raw, _, self._rest = self._rest.partition(b"\0")
                message = json.loads(raw)
                tab = self._tabs.get(message.get("sessionId", ""))
                if tab is not None and "method" in message:
                    tab.told.append(message)
                yield message
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"Chromium said nothing for {PATIENCE:g} s"
            part = os.read(self._answers, 1 << 20)
            if not part:
                return
            self._rest += part

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close", {})
        for pipe in (self._asks, self._answers):
            os.close(pipe)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def must_be_quiet(tab: Tab) -> None:
    """No word on the console, no exception, nothing that the policy stopped, and no request but for the file itself."""
    for method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
        assert tab.events(method) == []
    asked = {event["request"]["url"] for event in tab.events("Network.requestWillBeSent")}
    assert [url for url in asked if not url.endswith("/page.html")] == []


def must_be_drawn(tab: Tab, width: int) -> int:
    """Every chart at that width, and nothing wider than the screen. Gives how many charts there are."""
    tab.shape(width)
    paths = tab.ask(DRAWN)
    assert all(count > 3 for count in paths), paths
    assert tab.ask("document.documentElement.dataset.drawn") == str(len(paths))
    assert tab.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert tab.ask(OVERFLOWING) == []
    assert tab.ask("Math.max(...[...document.querySelectorAll('.canvas svg')].map(one => one.clientWidth))") <= width
    return len(paths)
