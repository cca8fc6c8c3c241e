"""The router's process: starts the replicas, puts the router in front of them, and ends both in order.

Told to end, it says that it is not ready, keeps taking what still comes for a moment, closes its door, answers what is
in flight, and only then ends the replicas. Told a second time it leaves at once, and the replicas with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

from msgspec import Struct
from starlette.routing import BaseRoute

from latdoctor.errors import OperationError
from latdoctor.lab.listening import Listening
from latdoctor.lab.server import router_admin
from latdoctor.lab.server.fleet import Fleet, RouterConfig, Standing
from latdoctor.lab.server.replicas import Command, Patience, Supervisor
from latdoctor.lab.server.router import Router

# What may be attached to a router at its start; its routes stand behind the token that it is given.
Agent = Callable[[Fleet, Supervisor, str], Sequence[BaseRoute]]

GRACE_SECONDS = 0.5
MOST_FALSE_STARTS = 3  # of one replica, before the router gives up


class RouterOptions(Struct, frozen=True):
    """What `serve` needs to know."""

    commands: tuple[Command, ...]
    config: RouterConfig = RouterConfig()
    patience: Patience = Patience()
    host: str = "127.0.0.1"
    port: int = 0  # 0 takes a free one
    token: str = ""  # of the admin interface; none: nobody is let in
    agent: Agent | None = None
    grace_seconds: float = GRACE_SECONDS


async def serve(
    options: RouterOptions,
    *,
    announce: Callable[[str], None],
    end: asyncio.Event | None = None,
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> None:
    """Serves until one of `signals` or `end`.

    `announce` gets the address once every replica is ready, and then the address of each of them. Raises
    OperationError where the port cannot be had or the replicas do not become ready, UsageError for bad options.
    """
    asked_to_end = end or asyncio.Event()

    def tell() -> None:
        if asked_to_end.is_set():
            os._exit(1)  # asked twice: no more waiting for anybody; the replicas are tethered
        asked_to_end.set()

    for wanted in signals:
        asyncio.get_running_loop().add_signal_handler(wanted, tell)
    fleet = Fleet({command.name: command.url for command in options.commands}, options.config)
    supervisor = Supervisor(fleet, options.commands, options.patience)
    also = options.agent(fleet, supervisor, options.token) if options.agent else ()
    async with Router(fleet) as router:
        app = router.app(*router_admin.routes(fleet, supervisor, options.token), *also)
        listening = Listening(app, host=options.host, port=options.port, drain_seconds=options.patience.drain)
        await listening.start()
        try:
            await supervisor.start()
            if await _all_ready(fleet, options.patience.start, asked_to_end):
                for url in (listening.url, *(command.url for command in options.commands)):
                    announce(url)
                await asked_to_end.wait()
                router.draining = True
                await asyncio.sleep(options.grace_seconds)
        finally:
            await listening.stop()
            await supervisor.stop()


async def _all_ready(fleet: Fleet, within: float, asked_to_end: asyncio.Event) -> bool:
    """False where the end is asked for before. Raises OperationError where a replica does not get there."""
    ready = asyncio.create_task(fleet.until(_settled, within))
    ending = asyncio.create_task(asked_to_end.wait())
    await asyncio.wait({ready, ending}, return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not ready.done():
        ready.cancel()
        return False
    await ready
    for one in fleet.standings():
        if one.state != "ready":
            raise OperationError(f"replica {one.name} ended {one.losses} times before it was ready")
    return True


def _settled(standings: Sequence[Standing]) -> bool:
    """All are ready, or one of them will hardly ever be."""
    return all(one.state == "ready" for one in standings) or any(
        one.losses >= MOST_FALSE_STARTS and one.state != "ready" for one in standings
    )
