"""A whole server with a fake model on a loopback port, in a thread of its own with its own event loop."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import httpx

from latdoctor.lab.hardened_http_server import HttpServer
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.inference_server import InferenceServer, ModelBackend, ServerIdentity
from latdoctor.lab.server.memory.pool_interface import MemoryPool
from latdoctor.lab.server.serve import Agent, app
from tests.lab.server.fakes import PATIENCE, FakeModel, FakePool, fake_backend

TOKEN = "a-token-for-tests"  # noqa: S105 - guards nothing
COMMON = ("replica", "backend", "le")
ADMIN = {"authorization": f"Bearer {TOKEN}"}


class Running:
    """As a context: the server runs inside it. `client` is a synchronous client of it."""

    def __init__(
        self,
        config: ServerConfig | None = None,
        identity: ServerIdentity | None = None,
        *,
        agent: Agent | None = None,
        pool: MemoryPool | None = None,
        backend: ModelBackend | None = None,
    ) -> None:
        """`backend`: a real model in place of the fake one."""
        self.model = FakeModel()
        self.pool: FakePool | MemoryPool = pool or FakePool()
        self._agent = agent
        self._backend = backend
        self._config = config or ServerConfig()
        self._identity = identity or ServerIdentity("r1", TOKEN)
        self._up = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="server-under-test")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(PATIENCE)
        if self._failed:
            raise self._failed
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False)
        self.until(lambda: self.client.get("/readyz").status_code == 200)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.model.gate.set()
        self.client.close()
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as failed:  # noqa: BLE001 - passed to the test, which raises it
            self._failed = failed
            self._up.set()

    async def _main(self) -> None:
        self.loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        backend = self._backend or fake_backend(self.model, self.pool)
        self.parts = InferenceServer(self._config, backend, self._identity)
        also = self._agent(self.parts) if self._agent else ()
        listening = HttpServer(app(self.parts, also))
        self.url, self.port = listening.url, listening.port
        await self.parts.start()
        await listening.start()
        self._up.set()
        await self._end.wait()
        self.parts.readiness.draining = True
        await listening.stop()
        await self.parts.stop()

    def on_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def ask(self, **fields: Any) -> httpx.Response:
        return self.client.post("/v1/intent", json=fields)

    def asking(self, **fields: Any) -> Asking:
        return Asking(self.url, fields)

    def page(self) -> dict[tuple[str, str], float]:
        """Samples of the metrics page: (name, the one label that is its own, or empty) → value."""
        samples = re.findall(r"^(\w+)\{([^}]*)\} (\S+)$", self.client.get("/metrics").text, re.MULTILINE)
        return {
            (
                name,
                next((value for label, value in re.findall(r'(\w+)="([^"]*)"', labels) if label not in COMMON), ""),
            ): float(value)
            for name, labels, value in samples
        }

    @staticmethod
    def until(holds: Callable[[], bool]) -> None:
        """Waits for what another thread is about to do; gives up in the end."""
        give_up = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < give_up
            threading.Event().wait(0.005)


class Asking:
    """A request on a thread of its own, whose answer is read later."""

    def __init__(self, url: str, fields: dict[str, Any]) -> None:
        self._answer: httpx.Response | None = None
        self._url, self._fields = url, fields
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        self._answer = httpx.post(f"{self._url}/v1/intent", json=self._fields, timeout=PATIENCE, trust_env=False)

    def answer(self) -> httpx.Response:
        self._thread.join(PATIENCE)
        assert self._answer is not None
        return self._answer
