"""The services and incidents of `bench.lifecycle_playbooks`: what is served, how it is loaded, and what goes wrong.

    python -m bench.lifecycle_incidents PORT ROW FOLDER

serves one of them until SIGTERM: a reference server whose model sleeps, or a router in front of three.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from latdoctor.lab.admin_client import AdminClient
from latdoctor.lab.faults import server_agent
from latdoctor.lab.faults.injection import AgentFault, Fault, InjectionTargets, SessionStoreFault, inject
from latdoctor.lab.faults.session_store import StoreFaultKind
from latdoctor.lab.processes import ChildProcess
from latdoctor.lab.redis_server import RedisServer, RedisSettings
from latdoctor.lab.server.admin_http import ADMIN_TOKEN_VARIABLE
from latdoctor.lab.server.config import load_config
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.serve import ServeOptions, serve
from latdoctor.lab.server.serve_replicas import RouterOptions, serve_router
from latdoctor.lab.server.sessions.redis_store import PASSWORD_VARIABLE
from latdoctor.lab.server.sleeping_model import ARCHITECTURE, INTENTS, SleepingVersion, SleepTimes, sleeping_backend
from latdoctor.lab.server.supervisor import ReplicaCommand, free_ports
from latdoctor.lab.server.versions.model_registry import add_version
from latdoctor.lab.server.versions.probe_set import ProbeRequest, write_probe_set
from latdoctor.load.mix import Mix
from latdoctor.load.text_tokens import text_tokens

TOKEN = "of-this-benchmark"  # noqa: S105 - guards nothing
REPLICAS = 3
LIFETIME = 900.0  # seconds: faults outlast the run
VERSIONS: Mapping[str, SleepingVersion] = {
    "v1": SleepingVersion(),
    "v2": SleepingVersion(slower=5.0),  # the bad one
    "v3": SleepingVersion(),  # the repaired one
}


@dataclass(frozen=True, slots=True)
class Service:
    """A running service. `pages`: the addresses with a metrics page, the first of them is changed."""

    url: str
    pages: tuple[str, ...]
    store: RedisServer | None = None

    @property
    def admin(self) -> AdminClient:
        return AdminClient(self.url, TOKEN)


Inject = Callable[[Service, ExitStack], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One playbook and its incident. `knobs` of each server; `rises`: the load in the incident, times the usual one."""

    name: str
    playbook: str
    inject: Inject
    rate: float  # requests per second
    mix: Mix
    times: SleepTimes
    slo: float  # seconds
    knobs: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    rises: float = 1.0
    routed: bool = False
    redis: bool = False

    def service(self, folder: Path) -> AbstractContextManager[Service]:
        return _service(self, folder)


@contextmanager
def _service(row: Row, folder: Path) -> Iterator[Service]:
    """The processes of a row, ended with the context. Raises OperationError, UsageError."""
    (port,) = free_ports(1)
    url, environment = f"http://127.0.0.1:{port}", {ADMIN_TOKEN_VARIABLE: TOKEN}
    with ExitStack() as ends:
        store = ends.enter_context(RedisServer(RedisSettings())) if row.redis else None
        knobs: list[str] = []
        if store is not None:
            environment[PASSWORD_VARIABLE] = store.password
            knobs = ["sessions.store=redis", f"sessions.redis_address={store.address}"]
        if row.routed:
            _registry(folder)
        words = [str(port), row.name, str(folder), *knobs]
        child = ends.enter_context(ChildProcess("the service", "bench.lifecycle_incidents", words, environment))
        child.wait_answers(f"{url}/readyz")
        replicas = json.loads(AdminClient(url, TOKEN).ask("GET", "/admin/replicas")[1]) if row.routed else ()
        yield Service(url, (url, *(one["url"] for one in replicas)), store)


def _registry(folder: Path) -> None:
    for name, version in VERSIONS.items():
        add_version(folder / "registry", name, version.file(), ARCHITECTURE)
    texts = [" ".join(["word"] * length) for length in range(2, 26)]
    write_probe_set(
        folder / "probes", [ProbeRequest(text, INTENTS[len(text_tokens(text)) % len(INTENTS)]) for text in texts]
    )


def _serve(port: int, row: Row, folder: Path, knobs: tuple[str, ...]) -> None:
    if row.routed:
        commands = tuple(_replica(row, folder, number, at) for number, at in enumerate(free_ports(REPLICAS)))
        config = RouterConfig(slow_start_ms=0, probe_set=str(folder / "probes"))
        asyncio.run(serve_router(RouterOptions(commands, config, port=port, token=TOKEN), announce=print))
        return
    config_ = load_config(None, [*row.knobs, *knobs])
    options = ServeOptions(config_, port=port, admin_token=TOKEN, agent=server_agent.attach)
    serve(options, partial(sleeping_backend, times=row.times))


def _replica(row: Row, folder: Path, number: int, port: int) -> ReplicaCommand:
    times = (f"--batch-ms={row.times.batch * 1e3:g}", f"--token-ms={row.times.token * 1e3:g}")
    knobs = ("model.version=v1", f"model.registry={folder}/registry", *row.knobs)
    command = (sys.executable, "-m", "latdoctor.lab.cluster.reference_pod", f"--port={port}", *times)
    environment = {"POD_IP": "127.0.0.1", "POD_NAME": str(number), ADMIN_TOKEN_VARIABLE: TOKEN}
    settings = tuple(f"--set={knob}" for knob in knobs)
    return ReplicaCommand(str(number), (*command, *settings), f"http://127.0.0.1:{port}", environment=environment)


def _router(**settings: Any) -> Inject:
    """A change of the router's configuration, as an operator deploys a version."""

    def change(service: Service, _: ExitStack) -> None:
        service.admin.ask("PATCH", "/admin/config", settings, {"If-Match": "*"})

    return change


def _fault(fault: Fault) -> Inject:
    def begin(service: Service, undo: ExitStack) -> None:
        inject(fault, InjectionTargets(servers=(service.admin,), session_store=service.store), undo)

    return begin


def _more_load(_: Service, __: ExitStack) -> None:
    """The load itself rises."""


_TEXTS = Mix(long_share=0.0, audio_share=0.0)
_SHORT = Mix(long_share=0.0, audio_share=0.0, short_tokens=(10, 20))
_SESSIONS = Mix(long_share=0.0, audio_share=0.0, sessions=20)


def _sessions(name: str, playbook: str, kind: StoreFaultKind) -> Row:
    fault = _fault(SessionStoreFault(kind, LIFETIME))
    knobs = ("sessions.window_turns=2", "sessions.max_sessions=0")
    return Row(name, playbook, fault, 40, _SESSIONS, SleepTimes(0.004, 0.00002), 0.1, knobs, redis=True)


def _versions(name: str, playbook: str, begin: Inject, **settings: str) -> Row:
    return Row(name, playbook, begin, 75, _TEXTS, SleepTimes(0.006, 0.0001), 0.1, settings=settings, routed=True)


def _overload(name: str, playbook: str) -> Row:
    times, knobs = SleepTimes(0.004, 0.0003), ("features.count=24",)
    return Row(name, playbook, _more_load, 20, _SHORT, times, 0.5, knobs, rises=2.6)


_POISON = Row(
    "poison-answers",
    "app.answer-cache.off",
    _fault(AgentFault("poison-answers", 0.5, LIFETIME)),
    40,
    Mix(long_share=0.0, audio_share=0.0, questions=40),
    SleepTimes(0.004, 0.00005),
    0.5,
    ("answer_cache.mode=normalised", "answer_cache.check_share=0.2"),
)

ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        _sessions("session-store-killed", "app.session.process-level", StoreFaultKind.KILL),
        _sessions("session-store-full", "app.session.store-memory", StoreFaultKind.FULL),
        _POISON,
        _versions("bad-canary", "framework.model.canary-abort", _router(canary_version="v2", canary_share=0.3)),
        _versions("bad-cut-over", "framework.model.rollout-to-all", _router(model_version="v2"), version="v1"),
        _versions("repaired-version", "framework.model.canary", _router(model_version="v2"), version="v3", share="30%"),
        _overload("feature-overload", "app.governance.trim-features"),
        _overload("overload-fallback", "app.governance.fallback"),
        _overload("overload-standby", "app.governance.standby"),
    )
}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _serve(int(sys.argv[1]), ROWS[sys.argv[2]], Path(sys.argv[3]), tuple(sys.argv[4:]))
