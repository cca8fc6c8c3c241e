"""Measures the capacity of a server with a closed loop: scenarios scale their load by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from latdoctor.load.mix import Conversations, Mix, body, draw
from latdoctor.load.openloop import Transport
from latdoctor.load.plan import LoadPlan, generator
from latdoctor.load.request_outcome import TIMEOUT, ending_of

_RAMP = 0.25  # share of the time in which the queue fills; not measured


class Saturation(Struct, frozen=True, tag="saturation"):
    """Answers per second with `in_flight` concurrent requests, over `seconds` without the ramp.

    A capacity, not a latency: each of the `in_flight` clients waits for its answer before the next request.
    """

    rate: float
    seconds: float
    in_flight: int
    answered: int
    other: int


class _Tally:
    def __init__(self) -> None:
        self.answered = self.other = self.next = 0


async def saturation(
    plan: LoadPlan, mix: Mix, transport: Transport, clock: Callable[[], float], seconds: float, in_flight: int
) -> Saturation:
    """Keeps `in_flight` requests of `mix` in flight for `seconds`; returns once the last is answered or timed out."""
    contents = generator(plan.seed, "saturate/mix")
    tally, conversations = _Tally(), Conversations()
    begin = clock() + seconds * _RAMP
    end = begin + seconds * (1 - _RAMP)

    async def send_requests() -> None:
        while clock() < end:
            number, ask = tally.next, conversations.joined(draw(mix, contents))
            tally.next += 1
            request_id = f"{plan.seed}-saturate-{number}"
            try:
                async with asyncio.timeout(plan.timeout_s):
                    status = (await transport.send(body(ask, request_id, 0), request_id, 0)).status
            except TimeoutError:
                status = TIMEOUT
            if begin <= clock() < end:
                answered = ending_of(status) == "answered"
                tally.answered += answered
                tally.other += not answered
            if ending_of(status) != "answered":
                await asyncio.sleep(0.01)  # limits the request rate against a server that refuses at once

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(send_requests())
    return Saturation(tally.answered / (end - begin), end - begin, in_flight, tally.answered, tally.other)
