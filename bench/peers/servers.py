"""The servers to compare, each with one setting, as groups of processes on a free loopback port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from bench.harness import ROOT
from latdoctor.errors import OperationError

OURS, LITSERVE, BENTOML = "latdoctor", "LitServe", "BentoML"
READY_WITHIN = 90.0  # seconds
STOP_WITHIN = 10.0
_QUESTION = json.dumps({"text": "where is my order please", "request_id": "ready"}).encode()


class Setting(Struct, frozen=True):
    """One way to run a server. `batch` 1: no batching. `wait_ms` is LitServe's `batch_timeout`; `latency_ms` BentoML's
    `max_latency_ms`. `plain`: other settings are the defaults; else its optimisations are on (LitServe's ZeroMQ queue)
    and its overhead is off (BentoML's access log and metrics). `grouped`: our code inside the server computes the batch
    in groups of similar length. `null`: the model answers immediately.
    """

    server: str
    batch: int = 1
    wait_ms: float = 0.0
    latency_ms: int = 60_000
    plain: bool = False
    grouped: bool = False
    null: bool = False

    @property
    def label(self) -> str:
        if self.server == OURS:
            return "defaults"
        knobs = [f"batch {self.batch}"]
        if self.batch > 1:
            knobs.append(f"wait {self.wait_ms:g} ms" if self.server == LITSERVE else f"latency {self.latency_ms} ms")
        if self.plain:
            knobs.append("defaults")
        if self.grouped:
            knobs.append("grouped by length")
        return ", ".join(knobs)


class Running:
    """A server with one setting; a context manager that ends all its processes."""

    def __init__(self, setting: Setting, programs: Path) -> None:
        self.setting = setting
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="latdoctor-peers-")
        self._output = Path(self._folder.name) / "output.log"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                _command(setting, programs, port),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **_environment(setting, self._folder.name)},
                start_new_session=True,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        family = [pid for pid, _ in _family(self._process.pid)]
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_WITHIN)
        for pid in family:  # workers that outlived their parent
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()

    def wait_ready(self) -> None:
        """Wait until it answers a request. Raises OperationError if it ends earlier or takes too long."""
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if self._answers():
                return
            time.sleep(0.1)
        raise OperationError(f"{self.setting.server} ({self.setting.label}) does not answer: {self._last_line()}")

    def _answers(self) -> bool:
        request = urllib.request.Request(  # noqa: S310 — our own server
            f"{self.url}/v1/intent", data=_QUESTION, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                return bool(json.load(answer)["request_id"] == "ready")
        except (OSError, urllib.error.URLError):
            return False

    def cpu_seconds(self) -> float:
        """The processor time of its running processes, user and system (proc(5), stat)."""
        ticks = sum(used for _, used in _family(self._process.pid))
        return ticks / os.sysconf("SC_CLK_TCK")

    def _last_line(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "no output"


def _family(root: int) -> list[tuple[int, int]]:
    """A process and all its living descendants, each with the ticks it has used: BentoML's workers have a session of
    their own."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid], used[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    found = [root] if root in used else []
    for pid in found:  # grows while it is walked
        found.extend(child for child, parent in parents.items() if parent == pid)
    return [(pid, used[pid]) for pid in found]


def _command(setting: Setting, programs: Path, port: int) -> list[str]:
    if setting.server == OURS:
        module = ["bench.peers.null_server"] if setting.null else ["latdoctor", "lab", "serve"]
        return [sys.executable, "-m", *module, "--port", str(port)]
    if setting.server == LITSERVE:
        knobs = ["--batch", str(setting.batch), "--wait-ms", str(setting.wait_ms)]
        queue = [] if setting.plain else ["--fast-queue"]
        return [
            str(programs / "python"), "-m", "bench.peers.litserve_server", "--port", str(port), *knobs, *queue
        ]  # fmt: skip
    service = "bench.peers.bento_service:Intent"
    return [str(programs / "bentoml"), "serve", service, "--host", "127.0.0.1", "--port", str(port)]


def _environment(setting: Setting, folder: str) -> dict[str, str]:
    return {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "OMP_NUM_THREADS": "1",
        "BENTOML_DO_NOT_TRACK": "True",
        "BENTOML_HOME": folder,
        "PEER_BATCH": str(setting.batch),
        "PEER_LATENCY_MS": str(setting.latency_ms),
        "PEER_LEAN": "0" if setting.plain else "1",
        "PEER_GROUPED": str(int(setting.grouped)),
        "PEER_NULL": str(int(setting.null)),
    }
