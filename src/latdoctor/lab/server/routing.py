"""The router's process: starts the replicas, puts the router in front of them, and ends both in order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

from msgspec import Struct

from latdoctor.lab.listening import Listening
from latdoctor.lab.server import router_admin
from latdoctor.lab.server.fleet import Fleet, RouterConfig
from latdoctor.lab.server.replicas import Command, Patience, Supervisor
from latdoctor.lab.server.router import Router


class RouterOptions(Struct, frozen=True):
    """What `serve` needs to know."""

    commands: tuple[Command, ...]
    config: RouterConfig = RouterConfig()
    patience: Patience = Patience()
    host: str = "127.0.0.1"
    port: int = 0  # 0 takes a free one
    token: str = ""  # of the admin interface; none: nobody is let in


async def serve(
    options: RouterOptions,
    *,
    announce: Callable[[str], None],
    end: asyncio.Event | None = None,
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> None:
    """Serves until one of `signals` or `end`. `announce` gets the address once every replica is ready.

    At the end the router takes in nothing more, answers what is in flight, and only then ends the replicas. Raises
    OperationError where the port cannot be had or the replicas do not become ready, UsageError for bad options.
    """
    asked_to_end = end or asyncio.Event()
    for wanted in signals:
        asyncio.get_running_loop().add_signal_handler(wanted, asked_to_end.set)
    fleet = Fleet({command.name: command.url for command in options.commands}, options.config)
    supervisor = Supervisor(fleet, options.commands, options.patience)
    async with Router(fleet) as router:
        app = router.app(*router_admin.routes(fleet, supervisor, options.token))
        listening = Listening(app, host=options.host, port=options.port, drain_seconds=options.patience.drain)
        await listening.start()
        try:
            await supervisor.start()
            if await _all_ready(fleet, options.patience.start, asked_to_end):
                announce(listening.url)
                await asked_to_end.wait()
        finally:
            await listening.stop()
            await supervisor.stop()


async def _all_ready(fleet: Fleet, within: float, asked_to_end: asyncio.Event) -> bool:
    """False where the end is asked for before."""
    ready = asyncio.create_task(fleet.until(lambda all_: all(one.state == "ready" for one in all_), within))
    ending = asyncio.create_task(asked_to_end.wait())
    await asyncio.wait({ready, ending}, return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not ready.done():
        ready.cancel()
        return False
    await ready
    return True
