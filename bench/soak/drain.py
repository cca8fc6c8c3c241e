"""SIGTERM under load: earlier requests are answered, later ones answered or refused, and the server ends."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

import aiohttp
import msgspec
from msgspec import Struct

from latdoctor.load.outcome import TIMEOUT
from latdoctor.load.transport import HttpTransport

BEFORE, AFTER = 0.5, 2.0  # seconds of load before and after the signal
ENDS_WITHIN = 60.0  # seconds: the limit of this script, not of the server
_REFUSED = frozenset({"503", "no-connection", "reset"})


class Drained(Struct, frozen=True):
    """`before` and `after` count the requests sent before and after the signal by how they ended; `computed_after` of
    the first were answered after it. A request is sent when its head has left the client, whose processor may be busy.
    `exit_code` is None for a server that did not end or was killed by a signal."""

    before: dict[str, int]
    after: dict[str, int]
    computed_after: int
    exit_code: int | None
    seconds: float

    def wrong(self) -> list[str]:
        """The failures."""
        found = []
        if lost := {status: count for status, count in self.before.items() if status != "200"}:
            found.append(f"drain: of the requests sent before SIGTERM some were not answered: {lost}")
        if lost := {status: count for status, count in self.after.items() if status not in {"200", *_REFUSED}}:
            found.append(f"drain: of the requests sent after SIGTERM some were neither answered nor refused: {lost}")
        if not any(self.after.get(status) for status in _REFUSED):
            found.append("drain: nothing was refused after SIGTERM: it kept accepting requests")
        if not self.computed_after:
            found.append("drain: nothing was in flight at SIGTERM, so this run shows nothing")
        if self.exit_code != 0:
            found.append(f"drain: the server's exit code is {self.exit_code}, not 0")
        return found


class _Sent(Struct):
    at: float = math.inf  # never
    ended: float = 0.0
    status: str = ""


def drain(url: str, pid: int, seed: int, rate: float, burst: int) -> Drained:
    """Send `burst` long requests at once and `rate` short ones a second, sends SIGTERM, and continues."""
    return asyncio.run(_drain(url, pid, seed, rate, burst))


async def _drain(url: str, pid: int, seed: int, rate: float, burst: int) -> Drained:
    sent: dict[str, _Sent] = {}
    chance = Random(f"{seed}/drain")
    async with HttpTransport(url, [_traced(sent)]) as transport, asyncio.TaskGroup() as tasks:

        async def ask(**fields: object) -> None:
            request_id = f"drain-{len(sent)}"
            one = sent[request_id] = _Sent()
            content = msgspec.json.encode({"request_id": request_id, **fields})
            try:
                async with asyncio.timeout(ENDS_WITHIN):
                    one.status = (await transport.send(content, request_id, 0)).status
            except TimeoutError:
                one.status = TIMEOUT
            one.ended = time.monotonic()

        async def keep_asking(until: float) -> None:
            while time.monotonic() < until:
                tasks.create_task(ask(text="where is my parcel"))
                await asyncio.sleep(chance.expovariate(rate))

        await keep_asking(time.monotonic() + BEFORE)
        for _ in range(burst):
            tasks.create_task(ask(audio_seconds=17.2))
            await asyncio.sleep(0)
        os.kill(pid, signal.SIGTERM)
        signalled = time.monotonic()
        await keep_asking(signalled + AFTER)
    code = await asyncio.to_thread(_exit_code, pid)
    return Drained(
        before=_counted(sent.values(), lambda one: one.at <= signalled),
        after=_counted(sent.values(), lambda one: one.at > signalled),
        computed_after=sum(one.at <= signalled < one.ended and one.status == "200" for one in sent.values()),
        exit_code=code,
        seconds=time.monotonic() - signalled,
    )


def _traced(sent: dict[str, _Sent]) -> aiohttp.TraceConfig:
    """Write down when the head of each request left."""

    async def left(_session: object, _context: object, head: aiohttp.TraceRequestHeadersSentParams) -> None:
        sent[head.headers["X-Request-Id"]].at = time.monotonic()

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(left)
    return config


def _counted(sent: Iterable[_Sent], which: Callable[[_Sent], bool]) -> dict[str, int]:
    return dict(Counter(one.status for one in sent if which(one)))


def _exit_code(pid: int) -> int | None:
    """The exit code of our child; its owner waits for it."""
    give_up = time.monotonic() + ENDS_WITHIN
    while time.monotonic() < give_up:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else None
        time.sleep(0.05)
    return None
