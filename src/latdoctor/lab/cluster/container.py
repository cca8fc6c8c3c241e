"""A container of a Pod: its image, its process, its probes, its restarts, and its entry in the Pod's status."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

from latdoctor.kubernetes_quantity import quantity
from latdoctor.lab.cluster.container_process import ContainerProcess
from latdoctor.lab.cluster.cpu_limit import CpuCounters, CpuLimit
from latdoctor.lab.cluster.images import command_of
from latdoctor.lab.cluster.kubelet_server import ContainerUsage
from latdoctor.lab.cluster.probes import Probe, ProbeTarget, http_failure

_LONGEST_BACKOFF = 300.0  # seconds
_RESET_AFTER = 600.0  # seconds of running without a restart
_AFTER_HOOK = 2.0  # seconds from SIGTERM to SIGKILL, also where the hook used up the grace period
KILLED = 137  # 128 + SIGKILL

Report = Callable[[str, str, str], None]  # an event: its type, reason and message


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """What containers of one kubelet have in common: known images, and the first back-off in seconds."""

    images: Mapping[str, Sequence[str]]
    backoff: float
    logs: Path


def timestamp(ahead: float = 0.0) -> str:
    """The present time in the form of the API, by a clock that is `ahead` seconds ahead."""
    return (datetime.now(UTC) + timedelta(seconds=ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Container:
    """One container, used by the thread of its Pod only."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        pod_spec: Mapping[str, Any],
        environment: Mapping[str, str],
        settings: ContainerSettings,
        report: Report,
        clock: Callable[[], str] = timestamp,
    ) -> None:
        """`clock`: the present time of its node, as text."""
        self._clock = clock
        self.name = str(spec["name"])
        self._spec, self._settings, self._report = spec, settings, report
        self._policy = pod_spec.get("restartPolicy", "Always")
        self._grace = float(pod_spec.get("terminationGracePeriodSeconds", 30))
        own = {one["name"]: one.get("value", "") for one in spec.get("env", ())}
        ports = {one["name"]: one["containerPort"] for one in spec.get("ports", ()) if "name" in one}
        self._target = ProbeTarget(environment["POD_IP"], ports, {**environment, **own})
        self._log = settings.logs / f"{environment['POD_NAMESPACE']}_{environment['POD_NAME']}_{self.name}.log"
        limits = spec.get("resources", {}).get("limits", {})
        memory = quantity(limits.get("memory"))
        self._memory = math.inf if memory is None else memory
        self._cpus = quantity(limits.get("cpu"))
        self._cpu_limit: CpuLimit | None = None
        self.process: ContainerProcess | None = None
        self.restarts = 0
        self._state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        self._last: dict[str, Any] = {}
        self._due = self._started = 0.0
        self._failures = 0
        self._probes: dict[str, Probe] = {}

    @property
    def finished(self) -> int | None:
        """The exit code of a container that is not started again."""
        terminated = self._state.get("terminated")
        return terminated["exitCode"] if terminated else None

    @property
    def started_once(self) -> bool:
        return "running" in self._state or bool(self._last) or self.finished is not None

    @property
    def started(self) -> bool:
        """Running, and its startup probe has succeeded."""
        return self.process is not None and ("startup" not in self._probes or bool(self._probes["startup"].result))

    @property
    def ready(self) -> bool:
        return self.started and ("readiness" not in self._probes or bool(self._probes["readiness"].result))

    def status(self) -> dict[str, Any]:
        """Its entry in `containerStatuses`."""
        return {
            "name": self.name,
            "image": self._spec["image"],
            "imageID": f"lab://{self._spec['image']}" if self.started_once else "",
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self._state,
            "lastState": self._last,
        }

    def usage(self, namespace: str, pod: str, uid: str) -> ContainerUsage | None:
        """What it uses, as a container of that Pod; None while it does not run. May be called from any thread."""
        process, limit = self.process, self._cpu_limit
        if process is None:
            return None
        counters = limit.counters if limit else CpuCounters()
        used, memory = process.processor_time(), process.resident()
        image = str(self._spec["image"])
        return ContainerUsage(namespace, pod, uid, self.name, image, self.restarts, self._cpus, used, memory, counters)

    def step(self, hurry: Event) -> None:
        """Starts it where that is due, notices its end, and probes it."""
        now = time.monotonic()
        if self.process is None:
            if self.finished is None and now >= self._due:
                self._start(now)
            elif "ErrImagePull" in self._state.get("waiting", {}).values():
                self._wait_in("ImagePullBackOff", f'Back-off pulling image "{self._spec["image"]}"', self._due)
            return
        code = self.process.exit_code
        if code is not None:
            self._ended(code, "Completed" if code == 0 else "Error")
        elif self.process.resident() > self._memory:
            self.process.kill()
            self._ended(KILLED, "OOMKilled")
        else:
            self._probe(now, hurry)

    def end(self, seconds: float, hurry: Event) -> None:
        """The preStop hook, SIGTERM, and SIGKILL when the time of both is over or `hurry` is set."""
        if self.process is not None:
            self._report("Normal", "Killing", f"Stopping container {self.name}")
            self._terminated(*self._stop(self.process, seconds, hurry))

    def _stop(self, process: ContainerProcess, seconds: float, hurry: Event) -> tuple[int, str]:
        """The exit code and the reason. Without a grace period there is no hook."""
        ends = time.monotonic() + seconds
        if seconds > 0:
            self._run_pre_stop(seconds, hurry)
        process.terminate()
        process.wait(max(0.0 if hurry.is_set() else _AFTER_HOOK, ends - time.monotonic()), hurry)
        process.kill()
        code = process.exit_code or 0
        return code, "Completed" if code == 0 else "Error"

    def _run_pre_stop(self, seconds: float, hurry: Event) -> None:
        hook = self._spec.get("lifecycle", {}).get("preStop", {})
        failure = ""
        if "exec" in hook:
            command = hook["exec"]["command"]
            process = ContainerProcess(command, self._target.environment, self._log)
            if not process.wait(seconds, hurry):
                failure = f"{command[0]}: killed after {seconds:g} s"
            elif process.exit_code:
                failure = f"{command[0]}: exit code {process.exit_code}"
            process.kill()
        elif "httpGet" in hook:
            failure = http_failure(hook["httpGet"], self._target, seconds)
        if failure:
            self._report("Warning", "FailedPreStopHook", failure)

    def _start(self, now: float) -> None:
        image = self._spec["image"]
        if image not in self._settings.images:
            message = f'Failed to pull image "{image}": the lab has no such image'
            self._report("Warning", "Failed", message)
            self._wait_in("ErrImagePull", message, now + self._next_backoff())
            return
        command = command_of(self._spec, self._settings.images[image], self._target.environment)
        if not command:
            message = f'Error: image "{image}" has no command, and the container names none'
            self._report("Warning", "Failed", message)
            self._wait_in("CreateContainerError", message, now + self._next_backoff())
            return
        self.process = ContainerProcess(command, self._target.environment, self._log)
        if self._cpus:
            self._cpu_limit = CpuLimit(self.process, self._cpus)
        self._started = now
        self._state = {"running": {"startedAt": self._clock()}}
        kinds = {kind: self._spec.get(f"{kind}Probe") for kind in ("startup", "readiness", "liveness")}
        self._probes = {kind: Probe(spec, self._target) for kind, spec in kinds.items() if spec}
        self._report("Normal", "Started", f"Started container {self.name}")

    def _probe(self, now: float, hurry: Event) -> None:
        for kind, probe in self._probes.items():
            if kind == "startup" and probe.result:
                continue
            if probe.step(now, self._started) and probe.message:
                self._report("Warning", "Unhealthy", f"{kind.capitalize()} probe failed: {probe.message}")
            if kind == "startup" and not probe.result:
                if probe.result is False:
                    self._restart(kind, hurry)
                return  # the others wait for it
            if kind == "liveness" and probe.result is False:
                self._restart(kind, hurry)
                return

    def _restart(self, kind: str, hurry: Event) -> None:
        """As the kubelet does after a failed probe: the restart policy decides what is next."""
        self._report("Normal", "Killing", f"Container {self.name} failed {kind} probe, will be restarted")
        if self.process is not None:
            self._ended(*self._stop(self.process, self._grace, hurry))

    def _ended(self, code: int, reason: str) -> None:
        """Its process has ended by itself, or by a probe: starts it again where the policy says so."""
        ran = time.monotonic() - self._started
        self._terminated(code, reason)
        if self._policy == "Never" or (self._policy == "OnFailure" and code == 0):
            return
        if ran > _RESET_AFTER:
            self._failures = 0
        self._last = self._state
        self.restarts += 1
        if self._failures == 0:  # the first restart is immediate
            self._failures = 1
            self._state = {"waiting": {"reason": "ContainerCreating"}}
            self._due = 0.0
            return
        wait = self._next_backoff()
        message = f"back-off {wait:g}s restarting failed container={self.name}"
        self._report("Warning", "BackOff", message)
        self._wait_in("CrashLoopBackOff", message, time.monotonic() + wait)

    def _terminated(self, code: int, reason: str) -> None:
        began = self._state.get("running", {}).get("startedAt", self._clock())
        self._state = {
            "terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": self._clock()}
        }
        if self._cpu_limit is not None:
            self._cpu_limit.close()
        self.process, self._cpu_limit, self._probes = None, None, {}

    def _wait_in(self, reason: str, message: str, due: float) -> None:
        self._state = {"waiting": {"reason": reason, "message": message}}
        self._due = due

    def _next_backoff(self) -> float:
        self._failures += 1
        doubled: float = self._settings.backoff * 2.0 ** min(self._failures - 2, 20)
        return min(max(doubled, self._settings.backoff), _LONGEST_BACKOFF)
