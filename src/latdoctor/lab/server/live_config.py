"""Live configuration of a running server: atomic changes, one at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from latdoctor.lab.server.answer_cache import AnswerCache
from latdoctor.lab.server.class_gate import ClassGate
from latdoctor.lab.server.config import ServerConfig, changed_restart_knobs, patched
from latdoctor.lab.server.dependency_client import DependencyClient
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.errors import NeedsRestart, StaleEtag
from latdoctor.lab.server.governance import Governance
from latdoctor.lab.server.memory.pool_interface import MemoryPool
from latdoctor.lab.server.sessions.session_levels import SessionLevels
from latdoctor.lab.server.standby_model import ServingModels


@dataclass(slots=True)
class LiveConfig:
    """The current configuration; applies changes to all components. Used on the event loop."""

    config: ServerConfig
    engine: Engine
    models: ServingModels
    pool: MemoryPool
    governance: Governance
    sessions: SessionLevels
    answers: AnswerCache
    dependency: DependencyClient
    classes: ClassGate
    threads: Executor
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _start: str = field(default_factory=lambda: secrets.token_hex(4))
    _changes: int = 0

    @property
    def etag(self) -> str:
        """Of the present configuration. Never reused, not even for an equal configuration, so that a delayed change
        that was based on an earlier one does not match.
        """
        return f"{self.config.etag}-{self._start}-{self._changes}"

    async def settled(self) -> ServerConfig:
        """The configuration once no change is in progress: it shows a client whose response was lost the outcome."""
        async with self._changing:
            return self.config

    async def change(self, patch: Mapping[str, Any], etags: frozenset[str]) -> ServerConfig:
        """The new configuration, in effect. `etags`: those the caller accepts; `*` is any.

        Raises UsageError for a bad value, StaleEtag, NeedsRestart, RequestRefused for a version of the model that the
        registry cannot give. Waiting requests are kept.
        """
        async with self._changing:
            before = self.config
            if not etags & {"*", self.etag}:
                raise StaleEtag("the configuration has changed meanwhile", next_step="read it again")
            after = patched(before, patch)
            fixed = changed_restart_knobs(before, after)
            if fixed:
                raise NeedsRestart(fixed)
            await self._apply(before, after)
            return after

    async def rebuild(self) -> str:
        """Loads or draws the models of the present configuration again; the checksum of the main one."""
        async with self._changing:
            return await asyncio.get_running_loop().run_in_executor(self.threads, self.models.rebuild)

    async def _apply(self, before: ServerConfig, after: ServerConfig) -> None:
        """First what can fail on this machine, then what cannot: a refused change has changed nothing."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.threads, self._apply_fallible, before, after)
        self.config = after
        self._changes += 1
        self.governance.configure(after)
        self.answers.configure(after.answer_cache)
        self.dependency.configure(after.dependency)
        self.classes.configure(after.priorities)
        if (before.batching, before.governance) != (after.batching, after.governance):
            self.engine.reschedule(after)

    def _apply_fallible(self, before: ServerConfig, after: ServerConfig) -> None:
        """On a thread of its own: building a model takes seconds, and the session store may be slow."""
        with ExitStack() as undo:
            self.models.prepare(after.model, standby=after.governance.standby != "off")
            undo.callback(self.models.prepare, before.model, standby=before.governance.standby != "off")
            if before.memory != after.memory:
                self.pool.set_live(after.memory)
                undo.callback(self.pool.set_live, before.memory)
            if before.sessions != after.sessions:
                self.sessions.configure(after.sessions)
            undo.pop_all()
