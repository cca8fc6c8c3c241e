"""The closed loop that measures a server's capacity: scenarios scale their load by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from latdoctor.load.latencies import Latencies
from latdoctor.load.mix import Conversations, Mix, body, draw, with_other_words
from latdoctor.load.openloop import Saturation
from latdoctor.load.outcome import TIMEOUT, Ending, ending_of
from latdoctor.load.plan import LoadPlan, generator
from latdoctor.load.request_template import RequestTemplate
from latdoctor.load.transport import Transport

_RAMP = 0.25  # share of the time in which the queue fills; not measured
_APART = 641  # words between the texts of two depths


class _Tally:
    def __init__(self) -> None:
        self.answered = self.other = self.next = 0
        self.took: list[float] = []


async def saturation(
    plan: LoadPlan,
    mix: Mix,
    transport: Transport,
    clock: Callable[[], float],
    seconds: float,
    in_flight: int,
    request: RequestTemplate | None = None,
) -> Saturation:
    """Measure the capacity of a server with a closed loop.

    Keeps `in_flight` requests of `mix` in flight for `seconds`; returns once the last is answered or timed out. Another
    depth sends requests of the same lengths with other words, which a cache of prompts has not seen.
    """
    contents = generator(plan.seed, "saturate/mix")
    tally, conversations = _Tally(), Conversations()
    begin = clock() + seconds * _RAMP
    end = begin + seconds * (1 - _RAMP)

    async def send_requests() -> None:
        while clock() < end:
            ask = with_other_words(draw(mix, contents), in_flight * _APART)
            number, ask = tally.next, conversations.joined(ask)
            tally.next += 1
            request_id = f"{plan.seed}-saturate-{number}"
            content = body(ask, request_id, 0) if request is None else request.content("", ask)
            sent = clock()
            try:
                async with asyncio.timeout(plan.timeout_s):
                    status = (await transport.send(content, request_id, 0)).status
            except TimeoutError:
                status = TIMEOUT
            if begin <= clock() < end:
                answered = ending_of(status) is Ending.ANSWERED
                tally.answered += answered
                tally.other += not answered
                if answered:
                    tally.took.append(clock() - sent)
            if ending_of(status) is not Ending.ANSWERED:
                await asyncio.sleep(0.01)  # limits the request rate against a server that refuses at once

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(send_requests())
    measured = end - begin
    histogram = Latencies(tally.took).encoded()
    return Saturation(tally.answered / measured, measured, in_flight, tally.answered, tally.other, histogram)
