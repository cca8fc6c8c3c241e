"""Probes of a container: HTTP, TCP and exec, with their delays and thresholds."""

from __future__ import annotations

import http.client
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """Where the probes of a container go: its address, its named ports, the environment of its commands."""

    address: str
    ports: Mapping[str, int]
    environment: Mapping[str, str]


class Probe:
    """One probe of a running container. `result` is None until a threshold is reached for the first time."""

    def __init__(self, spec: Mapping[str, Any], target: ProbeTarget) -> None:
        self._spec, self._target = spec, target
        self._successes = self._failures = 0
        self._due: float | None = None
        self.result: bool | None = None
        self.message = ""

    def step(self, now: float, started: float) -> bool:
        """Probes where it is due, and returns whether it did. Both times are of the monotonic clock."""
        if self._due is None:
            self._due = started + self._spec.get("initialDelaySeconds", 0)
        if now < self._due:
            return False
        self._due = now + self._spec.get("periodSeconds", 10)
        self.message = self._failure()
        if self.message:
            self._successes, self._failures = 0, self._failures + 1
            if self._failures >= self._spec.get("failureThreshold", 3):
                self.result = False
        else:
            self._successes, self._failures = self._successes + 1, 0
            if self._successes >= self._spec.get("successThreshold", 1):
                self.result = True
        return True

    def _failure(self) -> str:
        """Why the probe failed; empty where it succeeded."""
        timeout = float(self._spec.get("timeoutSeconds", 1))
        if "httpGet" in self._spec:
            return http_failure(self._spec["httpGet"], self._target, timeout)
        if "exec" in self._spec:
            return exec_failure(self._spec["exec"]["command"], self._target.environment, timeout)
        try:
            port = _port(self._spec["tcpSocket"]["port"], self._target)
            socket.create_connection((self._target.address, port), timeout).close()
        except OSError as error:
            return f"connect: {error}"
        return ""


def http_failure(action: Mapping[str, Any], target: ProbeTarget, timeout: float) -> str:
    """A GET without redirects; a status from 200 to 399 is a success, for which the result is empty."""
    path = action.get("path", "/")
    connection = http.client.HTTPConnection(target.address, _port(action["port"], target), timeout=timeout)
    try:
        headers = {one["name"]: one["value"] for one in action.get("httpHeaders", ())}
        connection.request("GET", path, headers=headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"GET {path}: {error}"
    finally:
        connection.close()
    return "" if 200 <= status < 400 else f"GET {path}: HTTP probe failed with statuscode: {status}"


def exec_failure(command: Sequence[str], environment: Mapping[str, str], timeout: float) -> str:
    """Runs the command; the result is empty where its exit code is 0."""
    try:
        done = subprocess.run(  # noqa: S603 (the command of the Pod)
            command, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]}: timed out after {timeout:g} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return "" if done.returncode == 0 else f"{command[0]}: exit code {done.returncode}"


def _port(named: int | str, target: ProbeTarget) -> int:
    return named if isinstance(named, int) else target.ports.get(named, 0)
