"""The proxy's process: the proxy and its control, until it is told to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from msgspec import Struct

from latdoctor.lab.faults import control
from latdoctor.lab.faults.proxy import FaultProxy
from latdoctor.lab.listening import Listening

HOST = "127.0.0.1"
DRAIN_SECONDS = 2.0  # of the control; what passes through the proxy is cut


class ProxyOptions(Struct, frozen=True):
    """Where everything goes, and what the control lets in. Port 0 takes a free one."""

    upstream_host: str
    upstream_port: int
    token: str
    port: int = 0
    control_port: int = 0
    seed: int = 0


def run(options: ProxyOptions, *, announce: Callable[[str], None]) -> None:
    """Passes on until SIGTERM or SIGINT. Raises OperationError where a port cannot be had."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options, announce))


async def _run(options: ProxyOptions, announce: Callable[[str], None]) -> None:
    told = asyncio.Event()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(wanted, told.set)
    proxy = FaultProxy(options.upstream_host, options.upstream_port, seed=options.seed)
    app = control.app(proxy, options.token)
    listening = Listening(app, host=HOST, port=options.control_port, drain_seconds=DRAIN_SECONDS)
    await proxy.start(HOST, options.port)
    try:
        await listening.start()
        announce(f"{HOST}:{proxy.port}")
        announce(listening.url)
        await told.wait()
        await listening.stop()
    finally:
        await proxy.close()
