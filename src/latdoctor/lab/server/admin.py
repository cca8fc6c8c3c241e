"""Admin interface of one server: configuration, profile, memory, queue, threads. Loopback and token only."""

from __future__ import annotations

import asyncio
import hmac
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.http.address import is_loopback
from latdoctor.lab.server import request_parser
from latdoctor.lab.server.config import ServerConfig, knobs
from latdoctor.lab.server.engine import Engine
from latdoctor.lab.server.errors import BadRequest, RequestRefused
from latdoctor.lab.server.intent_handler import CLIENT_GONE, refusal
from latdoctor.lab.server.live_config import LiveConfig, NeedsRestart, StaleEtag
from latdoctor.lab.server.memory.pool import MemoryStats
from latdoctor.lab.server.profiler import MAX_SECONDS, ProfileOptions, Profiler, ProfilerBusy
from latdoctor.lab.server.schedulers.batch import Work

ADMIN_TOKEN_VARIABLE = "LATDOCTOR_ADMIN_TOKEN"  # noqa: S105 - the name of the variable
MIN_TOKEN_LENGTH = 8


def admin_token(file: Path | None) -> str:
    """The token in `file`, else in the environment; empty if there is none: every request is then refused.

    Raises UsageError for a file that cannot be read, or a token of less than eight characters.
    """
    token = os.environ.get(ADMIN_TOKEN_VARIABLE, "").strip()
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("the admin token cannot be read", where=str(file)) from error
        if not token:
            raise UsageError("the file of the admin token is empty", where=str(file))
    if token and (len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"the admin token is shorter than {MIN_TOKEN_LENGTH} characters or not plain text",
            where=str(file or ADMIN_TOKEN_VARIABLE),
            next_step="openssl rand -hex 16",
        )
    return token


class AdminGuard:
    """Lets a request in, or raises RequestRefused: 403 from elsewhere or without a token set, 401 for a wrong one."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def check(self, request: Request) -> None:
        if request.client is None or not is_loopback(request.client.host):
            raise RequestRefused(403, "not-local", "the admin interface answers this machine only")
        if not self._token:
            raise RequestRefused(
                403, "no-token", f"the server was started without an admin token ({ADMIN_TOKEN_VARIABLE})"
            )
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token):
            raise RequestRefused(401, "wrong-token", "send the admin token as `Authorization: Bearer TOKEN`")


Handler = Callable[[Request], Awaitable[Response]]
MAX_LISTED_REQUESTS = 1000  # works of the queue that are listed


class AdminInterface:
    """Handlers behind the guard. Used on the event loop; what blocks runs on `threads`."""

    def __init__(
        self,
        guard: AdminGuard,
        live_config: LiveConfig,
        engine: Engine,
        profiling: Profiler,
        memory: Callable[[], MemoryStats],
        clock: Callable[[], float],
        threads: Executor,
    ) -> None:
        self._guard = guard
        self._live_config = live_config
        self._engine = engine
        self._profiling = profiling
        self._memory = memory
        self._clock = clock
        self._threads = threads

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/admin/config", self.guarded(self.config), methods=["GET"]),
            Route("/admin/config", self.guarded(self.change), methods=["PATCH"]),
            Route("/admin/knobs", self.guarded(self.knobs), methods=["GET"]),
            Route("/debug/profile", self.guarded(self.profile), methods=["POST"]),
            Route("/debug/memory", self.guarded(self.memory), methods=["GET"]),
            Route("/debug/queue", self.guarded(self.queue), methods=["GET"]),
            Route("/debug/threads", self.guarded(self.stacks), methods=["GET"]),
        ]

    def guarded(self, handler: Handler) -> Handler:
        """`handler` behind the guard, with its errors as JSON responses."""

        async def answer(request: Request) -> Response:
            try:
                self._guard.check(request)
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=CLIENT_GONE)
            except RequestRefused as refused:
                return refusal(refused)
            except LatdoctorError as error:
                return refusal(RequestRefused(*_STATUS.get(type(error), (409, "not-possible")), str(error)))

        return answer

    async def config(self, _: Request) -> Response:
        return self._shown(await self._live_config.settled())

    async def knobs(self, _: Request) -> Response:
        """Every knob, and whether it can be turned while the server runs."""
        return _json(dict(knobs()))

    async def change(self, request: Request) -> Response:
        """A merge patch of groups and knobs (as RFC 7396 has it, without deleting); If-Match is required."""
        etags = if_match(request)
        patch = mapping(await request_parser.read(request))
        return self._shown(await self._live_config.change(patch, etags))

    def _shown(self, config: ServerConfig) -> Response:
        """With its tag: nothing is awaited between the two."""
        response = _json(config)
        response.headers["etag"] = f'"{self._live_config.etag}"'
        return response

    async def profile(self, request: Request) -> Response:
        depth = ProfileOptions(*(request.query_params.get(name, "0") == "1" for name in ("shapes", "memory", "stack")))
        seconds = _seconds(request.query_params.get("seconds", "3"))
        trace = await self._profiling.take(seconds, depth)
        headers = {"content-disposition": 'attachment; filename="trace.json.gz"'}
        return Response(trace, headers=headers, media_type="application/gzip")

    async def memory(self, _: Request) -> Response:
        return _json(await asyncio.get_running_loop().run_in_executor(self._threads, self._memory))

    async def queue(self, _: Request) -> Response:
        """The waiting requests, oldest first, without waiting for the worker."""
        now, waiting = self._clock(), self._engine.pending.all()
        works = [_work(ticket.work, now) for ticket in waiting[:MAX_LISTED_REQUESTS]]
        tokens = sum(ticket.work.tokens for ticket in waiting)
        return _json({"depth": len(waiting), "tokens": tokens, "works": works})

    async def stacks(self, _: Request) -> Response:
        """Stack of every Python thread."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = {
            f"{names.get(ident, 'unnamed')} ({ident})": traceback.format_stack(frame)
            for ident, frame in sys._current_frames().items()
        }
        return _json(stacks)


def if_match(request: Request) -> frozenset[str]:
    """The ETags that a change names; `*` is any. Raises RequestRefused without any."""
    header = request.headers.get("if-match")
    if header is None:
        raise RequestRefused(428, "precondition-required", "send the ETag that you have read as If-Match")
    return frozenset(tag.strip().removeprefix("W/").strip('"') for tag in header.split(","))


_STATUS: dict[type[LatdoctorError], tuple[int, str]] = {
    UsageError: (422, "invalid"),
    StaleEtag: (412, "changed-meanwhile"),
    NeedsRestart: (409, "needs-restart"),
    ProfilerBusy: (409, "busy"),
}


def _work(work: Work, now: float) -> dict[str, float | str | int]:
    return {"id": work.id, "tokens": work.tokens, "lane": work.lane, "waited_seconds": round(now - work.arrived, 6)}


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def mapping(raw: bytes) -> dict[str, Any]:
    """A body as a JSON object. Raises BadRequest."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except UNDECODABLE as error:
        raise BadRequest(400, "malformed", f"the body is not a JSON object: {error}") from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not 0.1 <= seconds <= MAX_SECONDS:
        raise BadRequest(422, "invalid", f"`seconds` is a number from 0.1 to {MAX_SECONDS:g}")
    return seconds
