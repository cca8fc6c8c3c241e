"""The generator's own process: a LoadOrder on stdin, messages as JSON lines on stdout (see `process`)."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import time
from contextlib import AsyncExitStack

import msgspec
import uvloop

from latdoctor.load.live_changes import Adjustment
from latdoctor.load.openloop import OpenLoop
from latdoctor.load.plan import schedule
from latdoctor.load.process import LoadOrder, Message, RunEnded, RunStarted
from latdoctor.load.saturation import saturation
from latdoctor.load.summary import RawRun, summarise
from latdoctor.load.transport import HttpTransport, Transport


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=LoadOrder)
    uvloop.run(_saturate(order) if order.saturate_s else _load(order))


async def _load(order: LoadOrder) -> None:
    plan, planned = order.plan, schedule(order.plan)
    # The records of a run have no cycles: existing objects need no garbage collection during the run.
    gc.collect()
    gc.freeze()
    async with AsyncExitStack() as living:
        transport, page_address = await _transport(order, living)
        run = OpenLoop(plan, planned, transport, time.monotonic, order.request, adjustable=order.adjustable)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, run.stop)
        started, begin, cpu = time.time(), time.monotonic(), time.process_time()
        _send(RunStarted(started, page_address))
        beside = [asyncio.create_task(_report(run, order.report_s))]
        if order.adjustable:
            beside.append(asyncio.create_task(_adjust(run)))
        await run.run()
        for task in beside:
            task.cancel()
        seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
    _send(run.progress())
    outcomes = tuple(run.outcomes)
    more = run.added, run.sessions, tuple(run.changes)
    ran = RawRun(order.address, started, seconds, cpu, run.most_in_flight, run.stopped, outcomes, *more)
    _send(RunEnded(summarise(plan, planned, ran)))


async def _transport(order: LoadOrder, living: AsyncExitStack) -> tuple[Transport, str]:
    """The transport, and the address of the metrics page; empty without one."""
    if order.metrics_port is None:
        return await living.enter_async_context(HttpTransport(order.address, request=order.request)), ""
    from latdoctor.load.client_metrics import (  # imported only for runs with a page
        ClientPage,
        CountingTransport,
        served_page,
    )

    page = ClientPage()
    page_address = await living.enter_async_context(served_page(page, order.metrics_port))
    http = await living.enter_async_context(HttpTransport(order.address, page.traces(), order.request))
    return CountingTransport(http, page), page_address


async def _report(run: OpenLoop, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        try:
            _send(run.progress())
        except BrokenPipeError:  # the caller has ended, perhaps killed: no load without one
            run.stop()
            return


async def _adjust(run: OpenLoop) -> None:
    """Take the adjustments that follow the order. The caller sends none before the run started: nothing is lost."""
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    while line := await lines.readline():
        run.adjust(msgspec.json.decode(line, type=Adjustment))


async def _saturate(order: LoadOrder) -> None:
    plan = order.plan
    mix = next(phase.mix for phase in plan.phases if phase.name == order.phase)
    async with HttpTransport(order.address, request=order.request) as transport:
        _send(await saturation(plan, mix, transport, time.monotonic, order.saturate_s, order.in_flight, order.request))


def _send(message: Message) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
