"""A target for each action, with concurrent edits by another client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from latdoctor.http.client import Secret
from latdoctor.lab.hardened_http_server import HttpServer
from latdoctor.lab.server import router_admin
from latdoctor.lab.server.config import ServerConfig, knobs
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.supervisor import Supervisor
from latdoctor.remediation.actions import Action, find_action
from latdoctor.remediation.actions.process_scheduling import lowest_permitted_nice
from latdoctor.remediation.change import Change, Deadline, Field, Resource, Values, has_values
from latdoctor.remediation.target import Access, Target
from tests.lab.server.running_server import ADMIN, PATIENCE, TOKEN, Running
from tests.remediation.actions.lossy_proxy import Wire

ANY = {**ADMIN, "if-match": "*"}


@dataclass
class World:
    """`ours` and `other`: edits by another client, of the field that we change and of another one. `kept`: whether the
    latter is still in effect. `done`: how often the target has executed the request."""

    name: str
    given: Mapping[str, str]
    target: Target
    wire: Wire | None = None
    ours: Callable[[], object] | None = None
    other: Callable[[], object] | None = None
    kept: Callable[[], bool] = lambda: True
    done: Callable[[], int] | None = None

    @property
    def action(self) -> Action:
        found = find_action(self.name)
        assert found is not None
        return found

    @property
    def access(self) -> Access:
        return Access(self.target, Secret(TOKEN))

    @property
    def undo(self) -> str:
        (only,) = self.action.undos
        return only

    def planned(self) -> Change:
        assert list(self.action.check_arguments(self.given)) == []
        where = self.action.resource_id(self.target, self.given)
        state = self.action.resource(self.access, where).read(Deadline.after(PATIENCE))
        wanted = self.action.desired_values(self.given, state)
        fields = tuple(
            Field(name, state.values.get(name), value)
            for name, value in wanted.items()
            if not has_values(state.values, {name: value})
        )
        assert fields
        return Change("step", self.name, where, fields, self.undo, state.version, state.caution)

    def resource(self, change: Change) -> Resource:
        return self.action.resource(self.access, change.resource)

    def values(self, change: Change) -> Values:
        state = self.resource(change).read(Deadline.after(PATIENCE))
        return {field.name: state.values.get(field.name) for field in change.fields}


class Shared:
    """One server and one router for many worlds: starting and ending them takes longer than a test."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server: Running | None = None
        self._router: tuple[ReplicaPool, str] | None = None

    @contextmanager
    def server(self) -> Iterator[Running]:
        if self._server is None:
            self._server = self._stack.enter_context(Running())
        yield self._server
        assert self._server.client.put("/admin/draining", json={"draining": False}, headers=ANY).status_code == 200
        start = msgspec.to_builtins(ServerConfig())
        live: dict[str, dict[str, Any]] = {group: {} for group in start}
        for name, is_live in knobs():
            group, _, knob = name.partition(".")
            if is_live:
                live[group][knob] = start[group][knob]
        assert self._server.client.patch("/admin/config", json=live, headers=ANY).status_code == 200

    @contextmanager
    def router(self) -> Iterator[tuple[ReplicaPool, str]]:
        if self._router is None:
            self._router = self._stack.enter_context(routed())
        yield self._router
        self._router[0].configure(RouterConfig())

    def close(self) -> None:
        self._stack.close()


SHARED = Shared()


@contextmanager
def config() -> Iterator[World]:
    with SHARED.server() as server, Wire(server.url) as wire:

        def patch(**groups: Any) -> httpx.Response:
            return server.client.patch("/admin/config", json=groups, headers=ANY)

        def config() -> Any:
            return server.client.get("/admin/config", headers=ADMIN).json()

        yield World(
            "server.config.set",
            {"batching.scheduler": "count-only", "batching.buckets": "[64, 512]", "governance.lane_age_ms": "1s"},
            Target("lab", "reference", admin=wire.url),
            wire,
            ours=lambda: patch(governance={"lane_age_ms": 7}),
            other=lambda: patch(queue={"max_requests": 17}),
            kept=lambda: config()["queue"]["max_requests"] == 17,
        )


def once(name: str, count: str, path: str) -> Callable[[], Any]:
    @contextmanager
    def made() -> Iterator[World]:
        with SHARED.server() as server, Wire(server.url) as wire:

            def acts() -> Any:
                return server.client.get("/admin/acts", headers=ADMIN).json()

            def post(page: str, times: int = 1) -> None:
                for _ in range(times):
                    assert server.client.post(page, headers=ANY).status_code == 200

            before = acts()[count]
            yield World(
                name,
                {},
                Target("lab", "reference", admin=wire.url),
                wire,
                ours=lambda: post(path, 2),
                other=lambda: server.client.put("/admin/draining", json={"draining": True}, headers=ANY),
                kept=lambda: bool(acts()["draining"]),
                done=lambda: int(acts()[count] - before),
            )

    return made


@contextmanager
def draining() -> Iterator[World]:
    with SHARED.server() as server, Wire(server.url) as wire:

        def acts() -> Any:
            return server.client.get("/admin/acts", headers=ADMIN).json()

        before = acts()["warm_ups"]
        yield World(
            "server.draining.set",
            {"draining": "true"},
            Target("lab", "reference", admin=wire.url),
            wire,
            other=lambda: server.client.post("/admin/warm-up", headers=ANY),
            kept=lambda: bool(acts()["warm_ups"] == before + 1),
        )


class _Replacing:
    """Stands in for the supervisor: processes that are numbers only."""

    def __init__(self, fleet: ReplicaPool) -> None:
        self._fleet = fleet
        self._pid = 100

    async def replace(self, name: str) -> None:
        self._fleet.drain(name)
        self._fleet.lost(name)
        self.start(name)

    @property
    def replicas(self) -> int:
        return len(self._fleet.statuses())

    def scale(self, replicas: int) -> None:
        names = [one.name for one in self._fleet.statuses()]
        for name in names[replicas:]:
            self._fleet.remove(name)
        for name in [one for one in ("a", "b.1", *"0123456") if one not in names][: max(0, replicas - len(names))]:
            self._fleet.add(name, "http://127.0.0.1:9")
            self.start(name)

    def start(self, name: str) -> None:
        self._pid += 1
        self._fleet.started(name, self._pid)
        self._fleet.ready(name)


@contextmanager
def routed() -> Iterator[tuple[ReplicaPool, str]]:
    """A router's admin interface over replicas `a` and `b.1`, on a thread of its own."""
    fleet = ReplicaPool({"a": "http://127.0.0.1:9", "b.1": "http://127.0.0.1:9"})
    replacing = _Replacing(fleet)
    for name in ("a", "b.1"):
        replacing.start(name)
    up, urls, loops = threading.Event(), list[str](), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def main() -> None:
        end = asyncio.Event()
        loops.append((asyncio.get_running_loop(), end))
        listening = HttpServer(Starlette(routes=router_admin.routes(fleet, cast(Supervisor, replacing), TOKEN)))
        await listening.start()
        urls.append(listening.url)
        up.set()
        await end.wait()
        await listening.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert up.wait(PATIENCE)
    try:
        yield fleet, urls[0]
    finally:
        loop, end = loops[0]
        loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE)


@contextmanager
def router_config() -> Iterator[World]:
    with SHARED.router() as (fleet, url), Wire(url) as wire:

        def patch(**fields: Any) -> None:
            answer = httpx.patch(f"{url}/admin/config", json=fields, headers=ANY, trust_env=False)
            assert answer.status_code == 200

        yield World(
            "router.config.set",
            {"policy": "weighted", "weights.b.1": "20%"},
            Target("lab", "reference-router", admin=wire.url),
            wire,
            ours=lambda: patch(weights={"b.1": 0.7}),
            other=lambda: patch(weights={"a": 3}, timeout_ms=1234),
            kept=lambda: fleet.config.weights.get("a") == 3 and fleet.config.timeout_ms == 1234,
        )


@contextmanager
def replace() -> Iterator[World]:
    with SHARED.router() as (fleet, url), Wire(url) as wire:

        def post(name: str, times: int = 1) -> None:
            for _ in range(times):
                answer = httpx.post(f"{url}/admin/replicas/{name}/replace", headers=ADMIN, trust_env=False)
                assert answer.status_code == 200

        before = {one.name: one.starts for one in fleet.statuses()}
        yield World(
            "router.replica.replace",
            {"replica": "b.1"},
            Target("lab", "reference-router", admin=wire.url),
            wire,
            ours=lambda: post("b.1", 2),
            other=lambda: post("a"),
            kept=lambda: fleet.known("a").starts == before["a"] + 1,
            done=lambda: fleet.known("b.1").starts - before["b.1"],
        )


def scale(name: str, replicas: str) -> Callable[[], Any]:
    @contextmanager
    def made() -> Iterator[World]:
        with SHARED.router() as (_, url), Wire(url) as wire:

            def put(number: int) -> None:
                body = {"replicas": number}
                answer = httpx.put(f"{url}/admin/scale", json=body, headers=ANY, trust_env=False)
                assert answer.status_code == 200

            put(2)
            try:
                target = Target("lab", "reference-router", admin=wire.url)
                yield World(name, {"replicas": replicas}, target, wire, ours=lambda: put(7))
            finally:
                put(2)

    return made


THREADED = """
import sys, threading
threads = [threading.Thread(target=sys.stdin.read) for _ in range(2)]
for thread in threads: thread.start()
print('up', flush=True)
"""


@contextmanager
def child() -> Iterator[Target]:
    """A process of three threads that ends with its standard input."""
    with subprocess.Popen(
        [sys.executable, "-c", THREADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield Target("child", "process", pid=process.pid, started=float(started(process.pid)))
        finally:
            process.kill()


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def threads(pid: int) -> list[int]:
    return sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())


@contextmanager
def affinity() -> Iterator[World]:
    here = sorted(os.sched_getaffinity(0))
    if len(here) < 2:
        pytest.skip("this machine has one processor: there is nothing to choose")
    with child() as target:

        def elsewhere() -> None:
            for thread in threads(target.pid):
                os.sched_setaffinity(thread, {here[1]})

        yield World("process.affinity.set", {"cpus": str(here[0])}, target, ours=elsewhere)


@contextmanager
def nice() -> Iterator[World]:
    if lowest_permitted_nice() > 0:
        pytest.skip("this user may not lower nice, so that the action refuses to be planned")
    with child() as target:

        def elsewhere() -> None:
            for thread in threads(target.pid):
                os.setpriority(os.PRIO_PROCESS, thread, 7)

        yield World("process.nice.set", {"nice": "5"}, target, ours=elsewhere)


@contextmanager
def terminated() -> Iterator[World]:
    with child() as target:
        yield World("process.signal", {"signal": "SIGTERM"}, target)


@contextmanager
def stopped() -> Iterator[World]:
    with child() as target:
        yield World("process.stopped.set", {"stopped": "true"}, target)


class JsonServer(ThreadingHTTPServer):
    """One JSON object under /things/one, with an ETag or without."""

    def __init__(self, *, tagged: bool) -> None:
        super().__init__(("127.0.0.1", 0), _JsonHandler)
        self.tagged = tagged
        self.whole: dict[str, Any] = {"limit": 5, "kept": None, "group": {"size": 1, "other": [1, {"deep": 2}]}}
        self.lock = threading.Lock()
        self.tokens: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def tag(self) -> str:
        return f'"{hash(json.dumps(self.whole, sort_keys=True))}"'


class _JsonHandler(BaseHTTPRequestHandler):
    server: JsonServer

    def do_GET(self) -> None:
        self.server.tokens.add(self.headers.get("authorization", ""))
        with self.server.lock:
            self._answer(200, self.server.whole)

    def do_PUT(self) -> None:
        self._write(lambda _, new: new)

    def do_PATCH(self) -> None:
        self._write(_merged)

    def _write(self, become: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]) -> None:
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            named = self.headers.get("if-match", "*" if not self.server.tagged else "")
            if self.server.tagged and named not in ("*", self.server.tag):
                self._answer(412, {})
            else:
                self.server.whole = become(self.server.whole, given)
                self._answer(200, self.server.whole)

    def _answer(self, status: int, body: Mapping[str, Any]) -> None:
        self.send_response(status)
        if self.server.tagged:
            self.send_header("etag", self.server.tag)
        content = json.dumps(body).encode()
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """No log."""


def _merged(whole: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """RFC 7396."""
    result = dict(whole)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = _merged(result[name], value)
        else:
            result[name] = value
    return result


@contextmanager
def json_served(*, tagged: bool = True) -> Iterator[JsonServer]:
    with JsonServer(tagged=tagged) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def json_page(method: str, *, tagged: bool) -> Callable[[], Any]:
    @contextmanager
    def made() -> Iterator[World]:
        with json_served(tagged=tagged) as server, Wire(server.url) as wire:

            def edit(**fields: Any) -> None:
                with server.lock:
                    server.whole = _merged(server.whole, fields)

            yield World(
                "http.json.set",
                {"url": f"{wire.url}/things/one", "method": method, "set.limit": "9", "set.group.size": "2"},
                Target("page", "http", allow=(f"{wire.url}/things",)),
                wire,
                ours=lambda: edit(group={"size": 77}),
                other=lambda: edit(more=1),
                kept=lambda: server.whole["more"] == 1 and server.whole["group"]["other"] == [1, {"deep": 2}],
            )

    return made


WORLDS: dict[str, Callable[[], Any]] = {
    "server.config.set": config,
    "router.config.set": router_config,
    "server.warm-up": once("server.warm-up", "warm_ups", "/admin/warm-up"),
    "server.worker.restart": once("server.worker.restart", "worker_restarts", "/admin/restart-worker"),
    "server.reload": once("server.reload", "reloads", "/admin/reload"),
    "server.draining.set": draining,
    "router.replica.replace": replace,
    "router.replicas.at-least": scale("router.replicas.at-least", "4"),
    "router.replicas.release": scale("router.replicas.release", "1"),
    "process.affinity.set": affinity,
    "process.nice.set": nice,
    "process.signal": terminated,
    "process.stopped.set": stopped,
    "http.json.set patch": json_page("PATCH", tagged=True),
    "http.json.set put": json_page("PUT", tagged=True),
    "http.json.set untagged": json_page("PUT", tagged=False),
}
