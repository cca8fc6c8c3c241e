"""Stages of a request before and after the queue. Each can be wrapped while the server runs (fault injection).

    preprocess → session → features → dependency → (queue, forward) → postprocess → send

A stage returns whether it applied to the request: only then is its duration observed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

import msgspec

from latdoctor.errors import UsageError
from latdoctor.lab.server.access_log import AccessLog, AccessLogEntry, utc_time
from latdoctor.lab.server.answer_cache import AnswerCache, CachedAnswer
from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.features import feature_tokens
from latdoctor.lab.server.governance import Governance
from latdoctor.lab.server.intent_request import (
    AnswerSource,
    IntentRequest,
    IntentResponse,
    ModelAnswer,
    RequestContext,
    RequestTiming,
    SessionUse,
)
from latdoctor.lab.server.metrics import ServerMetrics
from latdoctor.lab.server.session_metrics import STORED
from latdoctor.lab.server.sessions.session_levels import SessionLevels
from latdoctor.lab.server.tokenizer import SEPARATOR, audio_frames, audio_length
from latdoctor.load.text_tokens import state_checksum, text_tokens

OK = 200
ON_THREAD = ("preprocess", "session", "features", "postprocess", "send")

Call: TypeAlias = Callable[[RequestContext], bool]  # runs on a request thread
Wrapper: TypeAlias = Callable[[Call], Call]
AsyncCall: TypeAlias = Callable[[RequestContext], Awaitable[bool]]  # runs on the event loop, where it only waits
Observe: TypeAlias = Callable[[float], None]


class TimedLock:
    """A mutual exclusion lock that reports every wait in seconds, zero where it was free."""

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._lock = threading.Lock()
        self._observe = observe

    def __enter__(self) -> None:
        if self._lock.acquire(blocking=False):
            self._observe(0.0)
            return
        started = perf_counter()
        self._lock.acquire()
        self._observe(perf_counter() - started)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Stages:
    """Runs the stages. Those on a thread share one hop there and back; the last wrapper added is the outermost."""

    def __init__(
        self, calls: Mapping[str, Call], dependency: AsyncCall, observe: Mapping[str, Observe], threads: Executor
    ) -> None:
        self._calls = calls
        self._dependency = dependency
        self._observe = observe
        self._threads = threads
        self._wrappers: dict[str, tuple[Wrapper, ...]] = dict.fromkeys(ON_THREAD, ())

    def wrap(self, name: str, wrapper: Wrapper) -> Callable[[], None]:
        """Wraps a stage that runs on a thread; the result unwraps it. Raises UsageError for another name."""
        if name not in self._wrappers:
            raise UsageError(f"there is no stage {name!r} on a thread", next_step=f"one of {', '.join(ON_THREAD)}")
        self._wrappers[name] += (wrapper,)
        return lambda: self._unwrap(name, wrapper)

    def _unwrap(self, name: str, wrapper: Wrapper) -> None:
        self._wrappers[name] = tuple(one for one in self._wrappers[name] if one is not wrapper)

    async def before(self, context: RequestContext) -> None:
        """The stages before the queue. Raises RequestRefused for a request that goes no further."""
        await self._on_thread(("preprocess", "session", "features"), context)
        started = perf_counter()
        applied = await self._dependency(context)
        self._note("dependency", started, applied=applied)

    async def after(self, context: RequestContext) -> None:
        """The stages after the computation; then `context.body` is what is sent."""
        await self._on_thread(("postprocess", "send"), context)

    async def elsewhere(self, run: Callable[[], None]) -> None:
        """Runs what would block on a request thread."""
        await asyncio.get_running_loop().run_in_executor(self._threads, run)

    async def _on_thread(self, names: tuple[str, ...], context: RequestContext) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._run, names, context)

    def _run(self, names: tuple[str, ...], context: RequestContext) -> None:
        for name in names:
            started, call = perf_counter(), self._calls[name]
            for wrapper in self._wrappers[name]:
                call = wrapper(call)
            applied = call(context)
            self._note(name, started, applied=applied)

    def _note(self, name: str, started: float, *, applied: bool) -> None:
        if applied and name in self._observe:
            self._observe[name](perf_counter() - started)


@dataclass(frozen=True, slots=True)
class StageHandlers:
    """The stages of one server. `clock` gives seconds of its monotonic clock."""

    intents: Sequence[str]
    features: int  # of one frame of audio
    max_tokens: int  # of one input, history included
    sessions: SessionLevels
    answers: AnswerCache
    shared: AbstractContextManager[None]
    governance: Governance
    metrics: ServerMetrics
    access_log: AccessLog | None
    clock: Callable[[], float]

    def calls(self) -> dict[str, Call]:
        return {
            "preprocess": self.preprocess,
            "session": self.session,
            "features": self.add_features,
            "postprocess": self.postprocess,
            "send": self.send,
        }

    def preprocess(self, context: RequestContext) -> bool:
        """Text into tokens, audio into frames. Raises BadRequest for an input that is too long for the model."""
        intent_request = context.intent_request
        if intent_request.text is not None:
            context.own = context.input = text_tokens(intent_request.text)
            context.tokens = len(context.own)
            self._check(context.tokens)
        elif intent_request.audio_seconds is not None:
            context.tokens = audio_length(intent_request.audio_seconds)
            self._check(context.tokens)  # before the frames are made
            context.input = audio_frames(intent_request.audio_seconds, self.features)
        self.metrics.input_tokens.observe(context.tokens)
        if _can_be_cached(context.intent_request):
            context.cached = self.answers.look_up(intent_request.text or "")
        return True

    def _check(self, tokens: int) -> None:
        if tokens > self.max_tokens:
            raise BadRequest(
                413, "too-long", f"the input has {tokens} tokens; this server takes {self.max_tokens} at most"
            )

    def session(self, context: RequestContext) -> bool:
        """Prepends the newest part of the history that still fits to a text; audio is understood without it.

        The history is the window that the session keeps. Where the session is lost, or is not what the transcript
        says, it is read whole from the transcript, and the session is made again from it.
        """
        intent_request = context.intent_request
        if intent_request.session is None:
            return False
        context.session = self.sessions.open_session(intent_request.session, intent_request.transcript)
        self._prepend(context, context.session.tokens)
        if context.session.level in STORED:
            self.metrics.history_tokens.observe(len(context.history))
        return True

    def _prepend(self, context: RequestContext, history: Sequence[int]) -> None:
        """Prepends the newest of `history` that there is room for."""
        room = self.max_tokens - context.tokens - 1
        context.history = history[-room:] if room > 0 and context.intent_request.text is not None else ()
        if context.history:
            context.input = [*context.history, SEPARATOR, *context.own]
            context.tokens = len(context.input)

    def add_features(self, context: RequestContext) -> bool:
        """Prepends the request's features to a text, as far as there is room for them."""
        names, trimmed = self.governance.features()
        text = context.intent_request.text
        if text is None or not (names or trimmed):
            return False
        room = max(0, self.max_tokens - context.tokens - 1)
        tokens = feature_tokens(names, context.intent_request.session or text)[: room - room % 2]
        if tokens:
            context.input = [*tokens, SEPARATOR, *context.input]
            context.tokens = len(context.input)
        if trimmed:
            self.metrics.features_trimmed.inc()
        return True

    def postprocess(self, context: RequestContext) -> bool:
        """Names the intent, and adds the turn to the session."""
        if context.computed is not None:
            context.intent = self.intents[context.computed.intent]
            context.source = AnswerSource.STANDBY if context.computed.standby else AnswerSource.MODEL
            self._cache(context, context.computed)
        elif context.cached is not None:
            context.intent, context.source = context.cached.intent, AnswerSource.CACHE
        text = context.intent_request.text
        if context.session is not None and text is not None:
            self.sessions.add_turn(context.session, text, context.own)
        now = self.clock()
        with self.shared:
            self.governance.answered(now - context.received)
        return True

    def _cache(self, context: RequestContext, computed: ModelAnswer) -> None:
        if _can_be_cached(context.intent_request) and not computed.standby:
            seconds = computed.computed - context.queued
            answer = CachedAnswer(context.intent, computed.score, computed.version, seconds, self.clock())
            self.answers.keep(context.intent_request.text or "", answer)

    def send(self, context: RequestContext) -> bool:
        """Encodes the response, and logs it."""
        context.sent = self.clock()
        computed, known = context.computed, context.computed or context.cached
        timing = RequestTiming(
            context.received,
            context.queued,
            computed.batched if computed else context.sent,
            computed.computed if computed else context.sent,
            context.sent,
        )
        context.body = msgspec.json.encode(
            IntentResponse(
                intent=context.intent,
                score=round(known.score, 6) if known else 0.0,
                model_version=known.version if known else "",
                request_id=context.request_id,
                source=context.source,
                timing=timing,
                session=_session_use(context),
            )
        )
        seconds, spent = context.sent - context.received, timing if computed else None
        asked = context.intent_request.session or "", len(context.own) or context.tokens
        self.log(context.entered, seconds, OK, context.request_id, context.source, spent, *asked)
        return True

    def log(
        self,
        entered: float,
        seconds: float,
        status: int,
        request_id: str,
        reason: str,
        timing: RequestTiming | None = None,
        session: str = "",
        tokens: int = 0,
    ) -> None:
        """A line of the access log, where there is one. Not on the event loop."""
        if self.access_log is not None:
            stages = timing.stages() if timing is not None else {}
            times = utc_time(entered), utc_time(time.time()), round(seconds, 6)
            replica = self.metrics.fixed[0]
            self.access_log.write(AccessLogEntry(*times, status, request_id, replica, reason, stages, session, tokens))


def _can_be_cached(intent_request: IntentRequest) -> bool:
    """A text by itself: with a session its answer depends on the history."""
    return intent_request.text is not None and intent_request.session is None


def _session_use(context: RequestContext) -> SessionUse | None:
    if context.session is None:
        return None
    return SessionUse(context.session.level, len(context.history), state_checksum(context.history))
