"""The service of these tests, its process, and what a test asks of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

BEFORE = {"batching": {"scheduler": "long-alone"}, "governance": {"lanes": False}}
AFTER = {"batching": {"scheduler": "token-budget"}, "governance": {"lanes": True}}
PATIENCE = 20.0


@dataclass(frozen=True)
class Asked:
    """`requests`: method, path and status of each, in the order in which they were answered."""

    config: dict[str, dict[str, Any]]
    revision: int
    requests: list[tuple[str, str, int]]

    @property
    def changes(self) -> list[tuple[str, str, int]]:
        return [one for one in self.requests if one[0] != "GET"]


class Target:
    """As a context: `tests.crash.service` runs inside it."""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.service"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on()
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def seen(self) -> Asked:
        with urllib.request.urlopen(f"{self.url}/test", timeout=PATIENCE) as answer:  # noqa: S310 - our own
            told = json.load(answer)
        return Asked(told["config"], told["revision"], [tuple(one) for one in told["asked"]])

    def order(self, **what: Any) -> None:
        """How it behaves from now on: `tests.crash.service.Service.told`."""
        request = urllib.request.Request(f"{self.url}/test", json.dumps(what).encode(), method="POST")  # noqa: S310
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            answer.read()

    def edit(self, **groups: Any) -> None:
        """Somebody else turns a knob."""
        headers = {"If-Match": "*"}
        request = urllib.request.Request(  # noqa: S310
            f"{self.url}/admin/config", json.dumps(groups).encode(), headers, method="PATCH"
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            answer.read()

    def hold(self) -> None:
        """It takes connections and never answers, until `go_on`."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)
