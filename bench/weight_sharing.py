"""Weights of a registered version in each replica, or shared by all: load time and resident memory.

    python -m bench.weight_sharing [--replicas 1 2 4] [--layers 12] [--width 512] [--output json]

For each number of replicas, servers are started with `model.weights` private and shared. Memory is the proportional set
size of the processes (PSS in /proc/PID/smaps_rollup: a page that n processes map counts as a nth in each) after a few
answers, load time that of `POST /admin/reload` at each replica, and start is until every replica is ready. The field's
shared pool of weights is this.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.harness import arguments, log, markdown, print_result
from latdoctor.http.client import HttpRequest, HttpResponse, send_request
from latdoctor.lab.metrics_snapshot import scrape
from latdoctor.lab.processes import ServerProcess
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.versions.model_registry import add_version

RELOADS = 5  # of each replica
ANSWERS = 20
MIB = 1 << 20


class Measured(Struct, frozen=True):
    """Memory of all replicas, `unshared_mib` of which each has alone. `load_s`: the mean reload, in seconds."""

    weights: str
    replicas: int
    weights_mib: float
    pss_mib: float
    unshared_mib: float
    load_s: float
    start_s: float


def measured(registry: Path, weights: str, replicas: int, size: int) -> Measured:
    """Starts the replicas, and measures them."""
    model = {"registry": str(registry), "weights": weights, "precision": "fp32"}
    config = patched(ServerConfig(), {"model": model})
    began = time.monotonic()
    with ExitStack() as running:
        servers = [running.enter_context(ServerProcess(config, faults=False)) for _ in range(replicas)]
        for server in servers:
            server.wait_ready()
        start = time.monotonic() - began
        for server in servers:
            _ask(server.url)
        memory = [_memory(server.pid) for server in servers]
        for _ in range(RELOADS):
            for server in servers:
                server.admin.ask("POST", "/admin/reload", None, {"If-Match": "*"})
        load = statistics.median(_load_seconds(server.url) for server in servers)
    return Measured(
        weights,
        replicas,
        round(size / MIB, 1),
        round(sum(pss for pss, _ in memory) / MIB, 1),
        round(sum(private for _, private in memory) / MIB, 1),
        round(load, 4),
        round(start, 2),
    )


def _ask(url: str) -> None:
    body = msgspec.json.encode({"text": "where is my order " * 20})
    request = HttpRequest("POST", f"{url}/v1/intent", {"Content-Type": "application/json"}, body)
    for _ in range(ANSWERS):
        response = send_request(request, 30.0)
        if not isinstance(response, HttpResponse) or response.status != 200:
            raise SystemExit(f"{url} did not answer: {response}")


def _memory(pid: int) -> tuple[int, int]:
    """Bytes of proportional set size, and of those that the process has alone."""
    found = dict(re.findall(r"^(\w+): +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    return int(found["Pss"]) * 1024, (int(found["Private_Clean"]) + int(found["Private_Dirty"])) * 1024


def _load_seconds(url: str) -> float:
    """The mean of the server's reloads."""
    values = scrape(url).values
    return values["ref_model_load_seconds_sum"] / values["ref_model_load_seconds_count"]


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args(given)
    import torch

    from latdoctor.lab.server.intent_model import INTENTS
    from latdoctor.lab.server.network import POSITIONS
    from latdoctor.lab.server.versions.network_weights import drawn_weights

    with tempfile.TemporaryDirectory(prefix="latdoctor-registry-") as folder:
        registry = Path(folder)
        weights = drawn_weights(
            "v1",
            layers=options.layers,
            width=options.width,
            intents=len(INTENTS),
            positions=POSITIONS,
            dtype=torch.float32,
        )
        size = add_version(registry, "v1", weights).size
        del weights
        found = []
        for replicas in options.replicas:
            for sharing in ("private", "shared"):
                found.append(measured(registry, sharing, replicas, size))
                log(f"{sharing}, {replicas}: {found[-1].pss_mib:g} MiB, load {found[-1].load_s:g} s")
    columns = Measured.__struct_fields__
    rows = [[getattr(one, name) for name in columns] for one in found]
    print_result(found, options.output, "\n".join(markdown(columns, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
