"""Live configuration of a running server: atomic changes, one at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Protocol

from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.lab.server.config import MemoryConfig, ServerConfig, changed_restart_knobs, patched
from latdoctor.lab.server.dependency_client import DependencyClient
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.governance import Governance
from latdoctor.lab.server.serving_models import ServingModels
from latdoctor.lab.server.sessions import SessionStore
from latdoctor.lab.server.stages import TimedLock


class LiveMemory(Protocol):
    """A memory backend whose knobs can be turned."""

    def set_live(self, config: MemoryConfig) -> None:
        """Raises UsageError for one that this machine cannot turn."""


class StaleEtag(OperationError):  # noqa: N818 - what happened, not a mistake
    """The configuration has changed since the caller read it."""


class NeedsRestart(OperationError):  # noqa: N818 - what happened, not a mistake
    """Knobs that cannot be turned while the server runs."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"needs a restart: {', '.join(names)}", next_step="start the server anew with them")
        self.names = names


class LiveConfig:
    """The current configuration; applies changes to all components. Used on the event loop."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        engine: Engine,
        models: ServingModels,
        pool: LiveMemory,
        governance: Governance,
        sessions: SessionStore,
        shared: TimedLock,
        dependency: DependencyClient,
        threads: Executor,
    ) -> None:
        self._config = config
        self._engine = engine
        self._models = models
        self._pool = pool
        self._governance = governance
        self._sessions = sessions
        self._shared = shared
        self._dependency = dependency
        self._threads = threads
        self._changing = asyncio.Lock()
        self._start = secrets.token_hex(4)
        self._changes = 0

    @property
    def config(self) -> ServerConfig:
        return self._config

    @property
    def etag(self) -> str:
        """Of the configuration as it now stands. It never comes back: not when the same is configured again, so that a
        change which was long on its way does not fit any more.
        """
        return f"{self._config.etag}-{self._start}-{self._changes}"

    async def settled(self) -> ServerConfig:
        """The configuration once no change is under way: who lost the answer to one learns here what became of it."""
        async with self._changing:
            return self._config

    async def change(self, patch: Mapping[str, Any], etags: frozenset[str]) -> ServerConfig:
        """The new configuration, in effect. `etags`: those the caller accepts; `*` is any.

        Raises UsageError for a bad value, StaleEtag, NeedsRestart. Requests that wait are kept.
        """
        async with self._changing:
            before = self._config
            if not etags & {"*", self.etag}:
                raise StaleEtag("the configuration has changed meanwhile", next_step="read it again")
            after = patched(before, patch)
            fixed = changed_restart_knobs(before, after)
            if fixed:
                raise NeedsRestart(fixed)
            await self._apply(before, after)
            return after

    async def rebuild(self) -> str:
        """The models of the configuration in force, made anew; the checksum of the main one. Nothing else changes."""
        async with self._changing:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._models.rebuild)

    async def _apply(self, before: ServerConfig, after: ServerConfig) -> None:
        """First what may be impossible here, then what cannot fail: a refused change has changed nothing."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, self._apply_fallible, before, after)
        self._config = after
        self._changes += 1
        self._governance.configure(after)
        self._dependency.configure(after.dependency)
        if (before.batching, before.governance) != (after.batching, after.governance):
            self._engine.reschedule(after)

    def _apply_fallible(self, before: ServerConfig, after: ServerConfig) -> None:
        """On a thread of its own: a model takes seconds to make, and the shared lock may be held by others."""
        self._models.prepare(after.model, standby=after.governance.standby != "off")
        if before.memory != after.memory:
            try:
                self._pool.set_live(after.memory)
            except LatdoctorError:
                self._models.prepare(before.model, standby=before.governance.standby != "off")
                raise
        if before.sessions != after.sessions:
            with self._shared:
                self._sessions.configure(after.sessions)
