"""The stages on request threads: preprocessing, session history, postprocessing, response and access log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import msgspec

from latdoctor.lab.server.access_log import AccessLog, AccessLogEntry, utc_time
from latdoctor.lab.server.errors import BadRequest
from latdoctor.lab.server.governance import Governance
from latdoctor.lab.server.metrics import ServerMetrics
from latdoctor.lab.server.request_context import IntentResponse, RequestContext, RequestTiming
from latdoctor.lab.server.sessions import SessionStore
from latdoctor.lab.server.stages import Call
from latdoctor.lab.server.tokenizer import SEPARATOR, audio_frames, audio_length, text_tokens

OK = 200


class StageHandlers:
    """The stages of one server. `clock` gives seconds of its monotonic clock."""

    def __init__(
        self,
        *,
        intents: Sequence[str],
        features: int,
        max_tokens: int,
        sessions: SessionStore,
        shared: AbstractContextManager[None],
        governance: Governance,
        metrics: ServerMetrics,
        access_log: AccessLog | None,
        clock: Callable[[], float],
    ) -> None:
        self._intents = intents
        self._features = features
        self._max_tokens = max_tokens
        self._sessions = sessions
        self._shared = shared
        self._governance = governance
        self._metrics = metrics
        self._access_log = access_log
        self._clock = clock

    def calls(self) -> dict[str, Call]:
        return {
            "preprocess": self.preprocess,
            "session": self.session,
            "postprocess": self.postprocess,
            "send": self.send,
        }

    def preprocess(self, exchange: RequestContext) -> bool:
        """Text into tokens, audio into frames. Raises BadRequest for an input that is too long for the model."""
        intent_request = exchange.intent_request
        if intent_request.text is not None:
            exchange.own = exchange.input = text_tokens(intent_request.text)
            exchange.tokens = len(exchange.own)
            self._check(exchange.tokens)
        elif intent_request.audio_seconds is not None:
            exchange.tokens = audio_length(intent_request.audio_seconds)
            self._check(exchange.tokens)  # before the frames are made
            exchange.input = audio_frames(intent_request.audio_seconds, self._features)
        self._metrics.input_tokens.observe(exchange.tokens)
        return True

    def _check(self, tokens: int) -> None:
        if tokens > self._max_tokens:
            raise BadRequest(
                413, "too-long", f"the input has {tokens} tokens; this server takes {self._max_tokens} at most"
            )

    def session(self, exchange: RequestContext) -> bool:
        """Puts the newest of the history that still fits before a text; audio is understood without it.

        The history is the window that the session keeps. Where the session is lost it is read whole from the
        transcript, if the client sent one, and the session is made again from it.
        """
        name = exchange.intent_request.session
        if name is None:
            return False
        with self._shared:
            history = self._sessions.history(name, self._clock())
        if history is None:
            self._metrics.session_misses.inc()
            self._put_before(exchange, self._read_again(name, exchange.intent_request.transcript))
        else:
            self._metrics.session_hits.inc()
            self._metrics.history_tokens.observe(self._put_before(exchange, history))
        return True

    def _put_before(self, exchange: RequestContext, history: Sequence[int]) -> int:
        """How many tokens of `history` there was room for."""
        room = self._max_tokens - exchange.tokens - 1
        kept = history[-room:] if room > 0 and exchange.intent_request.text is not None else ()
        if kept:
            exchange.input = [*kept, SEPARATOR, *exchange.own]
            exchange.tokens = len(exchange.input)
        return len(kept)

    def _read_again(self, name: str, transcript: Sequence[str]) -> tuple[int, ...]:
        """The tokens of all the turns, of which the session is made again."""
        turns = [text_tokens(turn) for turn in transcript]
        with self._shared:
            now = self._clock()
            for turn in turns:
                self._sessions.append(name, turn, now)
        return tuple(token for turn in turns for token in turn)

    def postprocess(self, exchange: RequestContext) -> bool:
        """Names the intent, and remembers the turn."""
        if exchange.computed is not None:
            exchange.intent = self._intents[exchange.computed.intent]
            exchange.source = "standby" if exchange.computed.standby else "model"
        now = self._clock()
        with self._shared:
            if exchange.intent_request.session is not None:
                self._sessions.append(exchange.intent_request.session, exchange.own, now)
            self._governance.answered(now - exchange.received)
        return True

    def send(self, exchange: RequestContext) -> bool:
        """The bytes of the answer, and its line in the access log."""
        exchange.sent = self._clock()
        computed = exchange.computed
        timing = RequestTiming(
            exchange.received,
            exchange.queued,
            computed.batched if computed else exchange.sent,
            computed.computed if computed else exchange.sent,
            exchange.sent,
        )
        exchange.body = msgspec.json.encode(
            IntentResponse(
                intent=exchange.intent,
                score=round(computed.score, 6) if computed else 0.0,
                model_version=computed.version if computed else "",
                request_id=exchange.request_id,
                source=exchange.source,
                timing=timing,
            )
        )
        seconds, spent = exchange.sent - exchange.received, timing if computed else None
        self.log(exchange.entered, seconds, OK, exchange.request_id, exchange.source, spent)
        return True

    def log(
        self,
        entered: float,
        seconds: float,
        status: int,
        request_id: str,
        reason: str,
        timing: RequestTiming | None = None,
    ) -> None:
        """A line of the access log, where there is one. Not on the event loop."""
        if self._access_log is not None:
            stages = timing.stages() if timing is not None else {}
            times = utc_time(entered), utc_time(time.time()), round(seconds, 6)
            replica = self._metrics.fixed[0]
            self._access_log.write(AccessLogEntry(*times, status, request_id, replica, reason, stages))
