"""One inference server: assembly, start and stop of its components. No sockets, no signals."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec import Struct

from latdoctor import __version__
from latdoctor.lab.server.access_log import AccessLog
from latdoctor.lab.server.admin import AdminInterface, Operations
from latdoctor.lab.server.admin_http import AdminGuard
from latdoctor.lab.server.answer_cache import AnswerCache
from latdoctor.lab.server.class_gate import ClassGate
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.control.server_control import ServerControl
from latdoctor.lab.server.dependency_client import DependencyClient
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.governance import Governance, Readiness
from latdoctor.lab.server.intent_handler import IntentHandler
from latdoctor.lab.server.intent_request import BODY_SECONDS
from latdoctor.lab.server.live_config import LiveConfig
from latdoctor.lab.server.memory.pool_interface import MemoryPool
from latdoctor.lab.server.metrics import BatchMetrics, ServerMetrics
from latdoctor.lab.server.metrics_collector import (
    GcPauses,
    ServerFigures,
    StateCollector,
    heartbeat,
    resident_bytes,
    threads,
)
from latdoctor.lab.server.profiler import ProfileOptions, Profiler, ProfileRecorder
from latdoctor.lab.server.schedulers import build as build_scheduler
from latdoctor.lab.server.schedulers.batch import Scheduler
from latdoctor.lab.server.schedulers.cost_model import CostModel
from latdoctor.lab.server.session_metrics import SessionMetrics, store_values
from latdoctor.lab.server.sessions.redis_store import StoreError
from latdoctor.lab.server.sessions.session_levels import SessionLevels
from latdoctor.lab.server.stages import StageHandlers, Stages, TimedLock
from latdoctor.lab.server.standby_model import Model, ServingModels

REQUEST_THREADS = 4
_STOP_SECONDS = 10.0  # time for the worker's last batch


class ServerIdentity(Struct, frozen=True):
    """Name, admin token and access log of one server."""

    replica: str = "0"
    admin_token: str = ""
    access_log: Path | None = None
    body_seconds: float = BODY_SECONDS


@dataclass(frozen=True, slots=True)
class ModelBackend:
    """The model, its memory and its runtime; injected, because the real one loads torch."""

    model: Model
    pool: MemoryPool
    intents: Sequence[str]
    features: int  # of one frame of audio
    backend: str  # cpu | cuda
    torch_threads: Callable[[], int]
    recorder: Callable[[ProfileOptions], ProfileRecorder]
    compiles: Callable[[], tuple[int, float]]  # how often the model was compiled, and for how many seconds


class InferenceServer:
    """All components of one server. `start` and `stop` run on its event loop."""

    def __init__(
        self,
        config: ServerConfig,
        backend: ModelBackend,
        identity: ServerIdentity,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backend = backend
        self.readiness = Readiness()
        self.metrics = ServerMetrics(identity.replica, backend.backend)
        self.shared = TimedLock(self.metrics.lock_wait.observe)
        self.cost_model = CostModel()
        self.governance = Governance(config, self.cost_model, clock)
        self.models = ServingModels(backend.model, self.governance.wants_standby, self.shared, self.metrics.model_load)
        self.batch_metrics = BatchMetrics(self.metrics, self.cost_model, backend.torch_threads, self.governance.load)
        self.engine = Engine(self._scheduler, config, self.models, self.batch_metrics, clock)
        self.sessions = SessionLevels(
            *(config.sessions, config.queue.max_tokens_per_request, SessionMetrics(self.metrics), self.shared, clock)
        )
        self.answers = AnswerCache(config.answer_cache, self.metrics, self._model_version, clock)
        self.classes = ClassGate(config.priorities, self.metrics)
        self.dependency = DependencyClient(config.dependency, self.metrics)
        self.access_log = AccessLog(identity.access_log) if identity.access_log else None
        self._request_threads = ThreadPoolExecutor(REQUEST_THREADS, "latdoctor-request")
        self.side_thread = ThreadPoolExecutor(1, "latdoctor-side")  # so that requests never wait for a new model
        self._page_thread = ThreadPoolExecutor(1, "latdoctor-page")
        self.stage_handlers = StageHandlers(
            *(backend.intents, backend.features, config.queue.max_tokens_per_request, self.sessions, self.answers),
            *(self.shared, self.governance, self.metrics, self.access_log, clock),
        )
        observe = {name: histogram.observe for name, histogram in self.metrics.stages.items()}
        self.stages = Stages(self.stage_handlers.calls(), self.dependency.stage, observe, self._request_threads)
        self.live_config = LiveConfig(
            *(config, self.engine, self.models, backend.pool, self.governance, self.sessions),
            *(self.answers, self.dependency, self.classes, self.side_thread),
        )
        self.intent_handler = IntentHandler(
            self.engine,
            self.stages,
            self.stage_handlers,
            self.governance,
            self.classes,
            self.metrics,
            self.readiness,
            lambda: self.live_config.config,
            clock,
            identity.body_seconds,
        )
        observed = self.governance.load, self.engine.pending, self.cost_model
        self.control = ServerControl(self.live_config, *observed, self.metrics, clock)
        profiler = Profiler(self.engine, backend.recorder, self.side_thread)
        self.guard = AdminGuard(identity.admin_token)
        self.admin = AdminInterface(
            self.live_config, self.engine, profiler, backend.pool.stats, clock, self.side_thread
        )
        self.operations = Operations(self.engine, self.models, self.live_config, self.readiness, profiler)
        self._clock, self._began, self._began_unix = clock, clock(), time.time()
        self.metrics.registry.register(StateCollector(self._figures, self.metrics.fixed))
        self._gc = GcPauses(self.metrics.gc_pause.observe)
        self._tasks: list[asyncio.Task[None]] = []

    def _scheduler(self, config: ServerConfig) -> Scheduler:
        governance = config.governance
        return build_scheduler(
            config.batching,
            self.cost_model,
            lane_boundary=governance.lane_boundary_tokens if governance.lanes else None,
            lane_age=governance.lane_age_ms / 1000,
        )

    async def page(self) -> bytes:
        """The metrics page, rendered off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._page_thread, self.metrics.page)

    async def start(self) -> None:
        """Starts the worker, and the warm-up of the model; until that ends, requests are refused."""
        self._gc.start()
        self.engine.start()
        beat = heartbeat(self.metrics.loop_lag.observe, self.engine.replace_lost_worker)
        self._tasks = [asyncio.create_task(work) for work in (beat, self._warm_up(), self.control.run())]

    async def _warm_up(self) -> None:
        config = self.live_config.config
        prepare = partial(self.models.prepare, config.model, standby=config.governance.standby != "off")
        await asyncio.get_running_loop().run_in_executor(self.side_thread, prepare)
        if config.model.warm_up:
            await self.engine.on_worker(self.models.warm_up)
        self.readiness.warm = True

    async def stop(self) -> None:
        """After the last request: ends the worker and the threads, and closes all files and connections."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        worker = self.engine.stop()
        if worker is not None:
            await asyncio.get_running_loop().run_in_executor(self.side_thread, worker.join, _STOP_SECONDS)
        await self.dependency.close()
        self.sessions.close()
        for pool in (self._request_threads, self.side_thread, self._page_thread):
            pool.shutdown(wait=False)
        self._gc.stop()
        if self.access_log is not None:
            self.access_log.close()
        self.backend.pool.close()

    def _figures(self) -> ServerFigures:
        """Runs on the metrics thread: takes no lock that requests hold for long."""
        model, now, pending = self.models.main, self._clock(), self.engine.pending
        compiles, compile_seconds = self.backend.compiles()
        info = {
            "version": __version__,
            "dtype": model.precision,
            "attention": model.settings.attention,
            "model_version": model.settings.version,
            "model_checksum": model.checksum,
        }
        values = {
            "ref_start_time_seconds": self._began_unix,
            "ref_uptime_seconds": now - self._began,
            "ref_queue_depth": pending.depth,
            "ref_queue_tokens": pending.tokens,
            "ref_queue_oldest_age_seconds": pending.oldest_age(now),
            "ref_breaker_open": self.governance.breaker.is_open(now),
            "ref_process_threads": threads(),
            "ref_torch_threads": self.batch_metrics.torch_threads or None,
            "ref_rss_bytes": resident_bytes(),
            "ref_sessions": len(self.sessions),
            "ref_compiles_total": compiles,
            "ref_compile_seconds_total": compile_seconds,
            "ref_process_cpu_seconds_total": time.process_time(),
            "ref_worker_restarts_total": self.engine.restarts,
            "ref_model_version_changes_total": self.models.version_changes,
            "ref_session_trimmed_turns_total": self.sessions.trimmed_turns,
            "ref_answer_cache_entries": len(self.answers),
            "ref_answer_cache_bytes": self.answers.size_bytes,
            "ref_session_store_breaker_open": self.sessions.breaker_open,
            **self._store_values(),
        }
        return ServerFigures(info, self.backend.pool.stats(), self.engine.usage, values)

    def _model_version(self) -> str:
        return self.models.main.settings.version

    def _store_values(self) -> dict[str, float]:
        """The figures of the shared store of sessions; none without one."""
        try:
            figures = self.sessions.figures()
        except StoreError:
            return store_values(None)
        return store_values(figures) if figures is not None else {}
