"""Canaries that are judged by the router alone: bad ones are rolled back, good ones promoted.

    python -m bench.canary [--runs 20] [--only good slow failing wrong] [--rate 60] [--output json]

Three replicas whose model sleeps, with versions of a model registry, behind the router. For each run a canary of one
replica is started with a share of the requests while clients send a constant load; the time until the decision, its
reason and the requests that failed are measured. A bad version is three times as slow, fails one batch in ten, or gives
one wrong answer in five.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from bench.harness import arguments, log, markdown, print_result
from latdoctor.lab.server.admin_http import ADMIN_TOKEN_VARIABLE
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.serve_replicas import RouterOptions, serve_router
from latdoctor.lab.server.sleeping_model import ARCHITECTURE, INTENTS, SleepingVersion
from latdoctor.lab.server.supervisor import ReplicaCommand, SupervisorTimeouts, free_ports
from latdoctor.lab.server.versions.model_registry import add_version
from latdoctor.lab.server.versions.probe_set import ProbeRequest, write_probe_set
from latdoctor.load.text_tokens import text_tokens

TOKEN = "of-this-benchmark"  # noqa: S105 - guards nothing
REPLICAS = 3
SHARE = 0.2
CLIENTS = 40  # at most so many requests at once
KINDS: Mapping[str, SleepingVersion] = {
    "good": SleepingVersion(),
    "slow": SleepingVersion(slower=3.0),
    "failing": SleepingVersion(failing=0.1),
    "wrong": SleepingVersion(wrong=0.2),
}
WITHIN = 150.0  # seconds: longer than a canary may be unproven


class CanaryRun(Struct, frozen=True):
    """One canary. `seconds` until the decision; `failed`: requests of clients without a 200, `canary`: those to it."""

    kind: str
    decision: str
    reason: str
    seconds: float
    requests: int
    failed: int
    canary: int


class KindResult(Struct, frozen=True):
    """The runs of one kind. `right`: decided as it should be, within 30 s for a rollback."""

    kind: str
    runs: int
    right: int
    reasons: dict[str, int]
    median_s: float
    longest_s: float
    requests: int
    failed: int
    failed_share: float


def prepared(folder: Path, runs: int) -> None:
    """The registry, with a new version for each run, and the probe set."""
    add_version(folder / "registry", "v0", SleepingVersion().file(), ARCHITECTURE)
    for kind, version in KINDS.items():
        for number in range(runs):
            add_version(folder / "registry", f"{kind}-{number}", version.file(), ARCHITECTURE)
    texts = [" ".join(["word"] * length) for length in range(2, 26)]
    write_probe_set(
        folder / "probes", [ProbeRequest(text, INTENTS[len(text_tokens(text)) % len(INTENTS)]) for text in texts]
    )


@contextlib.asynccontextmanager
async def service(folder: Path) -> AsyncIterator[str]:
    """The address of the router."""
    commands = tuple(
        ReplicaCommand(
            str(number),
            (
                *(sys.executable, "-m", "latdoctor.lab.cluster.reference_pod", f"--port={port}"),
                *(
                    "--batch-ms=6",
                    "--token-ms=0.1",
                    "--set=model.version=v0",
                    f"--set=model.registry={folder}/registry",
                ),
            ),
            f"http://127.0.0.1:{port}",
            environment={"POD_IP": "127.0.0.1", "POD_NAME": str(number), ADMIN_TOKEN_VARIABLE: TOKEN},
        )
        for number, port in enumerate(free_ports(REPLICAS))
    )
    options = RouterOptions(commands, RouterConfig(slow_start_ms=0), SupervisorTimeouts(), token=TOKEN)
    announced: asyncio.Queue[str] = asyncio.Queue()
    end = asyncio.Event()
    serving = asyncio.create_task(serve_router(options, announce=announced.put_nowait, end=end, signals=()))
    try:
        first = asyncio.create_task(announced.get())
        await asyncio.wait({first, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        yield await first
    finally:
        end.set()
        await serving


class Load:
    """Open loop: requests at a constant rate, each counted by status and version."""

    def __init__(self, session: Any, rate: float) -> None:
        self.statuses: Counter[int] = Counter()
        self.versions: Counter[tuple[str, int]] = Counter()
        self._session, self._rate = session, rate
        self._running: set[asyncio.Task[None]] = set()
        self._texts = random.Random(1)

    async def run(self) -> None:
        due = time.monotonic()
        while True:
            due += 1 / self._rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if len(self._running) < CLIENTS:
                task = asyncio.create_task(self._ask())
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _ask(self) -> None:
        import aiohttp

        text = " ".join(["word"] * self._texts.randrange(3, 40))
        try:
            async with self._session.post("/v1/intent", json={"text": text}) as answer:
                await answer.read()
                status, version = answer.status, answer.headers.get("x-model-version", "")
        except (aiohttp.ClientError, TimeoutError):
            status, version = 0, ""
        self.statuses[status] += 1
        self.versions[version, status] += 1


async def one_run(session: Any, load: Load, folder: Path, kind: str, version: str) -> CanaryRun:
    headers = {"Authorization": f"Bearer {TOKEN}", "If-Match": "*"}
    before, canary_before = load.statuses.copy(), load.versions.copy()
    began = time.monotonic()
    config = {
        "canary_version": version,
        "canary_share": SHARE,
        "canary_judge": True,
        "probe_set": str(folder / "probes"),
    }
    async with session.patch("/admin/config", json=config, headers=headers) as answer:
        if answer.status != 200:
            raise SystemExit(f"the canary of {version} was refused: {await answer.text()}")
    status: dict[str, Any] = {}
    while time.monotonic() - began < WITHIN and status.get("last_version") != version:
        await asyncio.sleep(0.1)
        async with session.get("/admin/canary", headers=headers) as answer:
            status = await answer.json()
    seconds = time.monotonic() - began
    decided = status.get("last_version") == version
    done, by_version = load.statuses - before, load.versions - canary_before
    async with session.patch("/admin/config", json={"model_version": "v0"}, headers=headers) as answer:
        if answer.status != 200:
            raise SystemExit(f"v0 was refused: {await answer.text()}")
    await asyncio.sleep(0.5)
    return CanaryRun(
        kind,
        str(status["last"]) if decided else "none",
        str(status["reason"]) if decided else "",
        round(seconds, 2),
        sum(done.values()),
        sum(count for code, count in done.items() if code != 200),
        sum(count for (of, _), count in by_version.items() if of == version),
    )


async def all_runs(folder: Path, runs: int, kinds: Sequence[str], rate: float) -> list[CanaryRun]:
    import aiohttp

    found: list[CanaryRun] = []
    async with service(folder) as url, aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=30)) as session:
        load = Load(session, rate)
        sending = asyncio.create_task(load.run())
        await asyncio.sleep(2.0)
        for number in range(runs):
            for kind in kinds:
                found.append(await one_run(session, load, folder, kind, f"{kind}-{number}"))
                log(f"{found[-1]}")
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
    return found


def summary(kind: str, runs: Sequence[CanaryRun]) -> KindResult:
    good = kind == "good"
    right = [one for one in runs if one.decision == ("promote" if good else "roll-back")]
    in_time = [one for one in right if good or one.seconds <= 30.0]
    failed, total = sum(one.failed for one in runs), sum(one.requests for one in runs)
    return KindResult(
        kind,
        len(runs),
        len(in_time),
        dict(Counter(one.reason or "-" for one in runs)),
        round(statistics.median(one.seconds for one in runs), 1),
        round(max(one.seconds for one in runs), 1),
        total,
        failed,
        round(failed / total, 5) if total else 0.0,
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="of each kind")
    parser.add_argument("--only", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--rate", type=float, default=60.0, help="requests per second")
    options = parser.parse_args(given)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="latdoctor-canary-") as name:
        folder = Path(name)
        prepared(folder, options.runs)
        runs = asyncio.run(all_runs(folder, options.runs, options.only, options.rate))
    found = [summary(kind, [one for one in runs if one.kind == kind]) for kind in options.only]
    columns = KindResult.__struct_fields__
    rows = [[getattr(one, name) for name in columns] for one in found]
    print_result(msgspec.to_builtins(found), options.output, "\n".join(markdown(columns, rows)))
    return 0 if all(one.right == one.runs for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
