"""`latdoctor lab serve --replicas N`: several servers on this machine behind a router."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import msgspec
from msgspec import Struct
from starlette.routing import BaseRoute

from latdoctor.errors import OperationError
from latdoctor.lab.hardened_http_server import HttpServer, stop_event
from latdoctor.lab.server import router_admin
from latdoctor.lab.server.admin_http import ADMIN_TOKEN_VARIABLE, AdminGuard
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.control.router_control import RouterControl
from latdoctor.lab.server.edge_group import EdgeAgent, EdgeGroup
from latdoctor.lab.server.edge_nodes import EdgeNodes
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.outlier_probe import OutlierProbe
from latdoctor.lab.server.replica_pool import ReplicaPool, ReplicaState, ReplicaStatus
from latdoctor.lab.server.router import Router
from latdoctor.lab.server.serve import DRAIN_SECONDS, GRACE_SECONDS, ServeOptions
from latdoctor.lab.server.supervisor import CommandOf, ReplicaCommand, Supervisor, SupervisorTimeouts, free_ports
from latdoctor.lab.server.versions.canary_controller import CanaryController
from latdoctor.lab.server.versions.version_rollout import VersionRollout

# Extension attached at the start of a router; its routes require the token.
Agent = Callable[[ReplicaPool, Supervisor, str], Sequence[BaseRoute]]

ROUTER_GRACE_SECONDS = 0.5
MOST_FALSE_STARTS = 3  # of one replica, before the router gives up
MOST_REPLICAS = 16  # that the admin interface may ask for


class RouterOptions(Struct, frozen=True):
    """Options of the router process."""

    commands: tuple[ReplicaCommand, ...]
    config: RouterConfig = RouterConfig()
    timeouts: SupervisorTimeouts = SupervisorTimeouts()
    host: str = "127.0.0.1"
    port: int = 0  # 0 takes a free one
    token: str = ""  # of the admin interface; empty: every request is refused
    agent: Agent | None = None
    grace_seconds: float = ROUTER_GRACE_SECONDS
    command_of: CommandOf | None = None  # for further replicas; without it their number is fixed
    edge: tuple[ReplicaCommand, ...] = ()  # of the nodes of an edge tier
    edge_agent: EdgeAgent | None = None


async def serve_router(
    options: RouterOptions,
    *,
    announce: Callable[[str], None],
    end: asyncio.Event | None = None,
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> None:
    """Serves until one of `signals` or `end`.

    `announce` gets the address once every replica is ready, and then the address of each of them. Raises
    OperationError where the port is not available or the replicas do not become ready, UsageError for bad options.
    """
    stop_requested = end or stop_event(signals)
    pool = ReplicaPool({command.name: command.url for command in options.commands}, options.config)
    supervisor = Supervisor(pool, options.commands, options.timeouts, options.command_of, MOST_REPLICAS)
    edge = EdgeGroup(options.edge, options.timeouts) if options.edge else None
    groups = [(pool, supervisor), *([(edge.pool, edge.supervisor)] if edge else [])]
    rollout = VersionRollout(pool, options.token)
    also = [
        *(options.agent(pool, supervisor, options.token) if options.agent else ()),
        *(edge.routes(options.token, options.edge_agent) if edge else ()),
    ]
    async with Router(pool, edge=edge.pool if edge else None) as router:
        canary = CanaryController(pool, rollout, router.metrics.versions, router.metrics.registry)
        control = RouterControl(pool, router.metrics.latencies, router.metrics.registry)
        admin = router_admin.routes(pool, supervisor, options.token, rollout, canary)
        app = router.app(*admin, *control.routes(AdminGuard(options.token)), *also)
        listening = HttpServer(app, host=options.host, port=options.port, drain_seconds=options.timeouts.drain)
        await listening.start()
        try:
            for _, processes in groups:
                await processes.start()
            if all([await _all_ready(nodes, options.timeouts.start, stop_requested) for nodes, _ in groups]):
                for url in (listening.url, *(command.url for command in (*options.commands, *options.edge))):
                    announce(url)
                async with AsyncExitStack() as tasks:
                    await tasks.enter_async_context(running(canary.run()))
                    await tasks.enter_async_context(running(control.run()))
                    for nodes, _ in groups:
                        await tasks.enter_async_context(running(OutlierProbe(nodes).run()))
                    await stop_requested.wait()
                router.draining = True
                await asyncio.sleep(options.grace_seconds)
        finally:
            await listening.stop()
            for _, processes in groups:
                await processes.stop()


@asynccontextmanager
async def running(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs `work` beside the context, and cancels it at the end. Raises what it raised."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _all_ready(pool: ReplicaPool, within: float, stop_requested: asyncio.Event) -> bool:
    """False where a stop is requested before. Raises OperationError where a replica does not become ready."""
    ready = asyncio.create_task(pool.until(_settled, within))
    ending = asyncio.create_task(stop_requested.wait())
    await asyncio.wait({ready, ending}, return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not ready.done():
        ready.cancel()
        return False
    await ready
    for one in pool.statuses():
        if one.state is not ReplicaState.READY:
            raise OperationError(f"replica {one.name} ended {one.losses} times before it was ready")
    return True


def _settled(statuses: Sequence[ReplicaStatus]) -> bool:
    """All are ready, or one of them has failed to start too often."""
    return all(one.state is ReplicaState.READY for one in statuses) or any(
        one.losses >= MOST_FALSE_STARTS and one.state is not ReplicaState.READY for one in statuses
    )


def serve(
    options: ServeOptions,
    replicas: int,
    config: RouterConfig,
    agent: Agent | None = None,
    *,
    edge: EdgeNodes | None = None,
    edge_agent: EdgeAgent | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT; prints the addresses of the router, its replicas and its edge nodes.

    Raises UsageError, and OperationError where the port is not available or a replica does not become ready.
    """
    import uvloop

    options.check_host()
    router = RouterOptions(
        commands(options, replicas),
        config,
        SupervisorTimeouts(drain=GRACE_SECONDS + DRAIN_SECONDS + 5),  # the longest time that a replica takes to end
        options.host,
        options.port,
        options.admin_token,
        agent,
        command_of=partial(_command, options),
        edge=edge_commands(options, edge or EdgeNodes()),
        edge_agent=edge_agent,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_router(router, announce=lambda url: print(url, flush=True)))


def commands(options: ServeOptions, replicas: int) -> tuple[ReplicaCommand, ...]:
    """The command of each replica, on a free port of its own. The token is passed in the environment."""
    ports = free_ports(replicas)
    return tuple(_command(options, str(number), port) for number, port in enumerate(ports))


def edge_commands(options: ServeOptions, edge: EdgeNodes) -> tuple[ReplicaCommand, ...]:
    """The same for the nodes of an edge tier."""
    own = msgspec.structs.replace(options, config=edge.config)
    return tuple(_command(own, f"edge-{number}", port) for number, port in enumerate(free_ports(edge.count)))


def _command(options: ServeOptions, name: str, port: int = 0) -> ReplicaCommand:
    """The command of the replica with that name; without a port on one that is free."""
    port = port or free_ports(1)[0]
    log, agent = options.access_log, ("--fault-agent",) if options.agent else ()
    return ReplicaCommand(
        name,
        (
            *(sys.executable, "-m", "latdoctor", "lab", "serve", f"--port={port}", f"--replica={name}"),
            *agent,
            *(f"--set={setting}" for setting in settings(options.config)),
            *((f"--access-log={log}.{name}",) if log else ()),
        ),
        f"http://127.0.0.1:{port}",
        environment={ADMIN_TOKEN_VARIABLE: options.admin_token},
    )


def settings(config: ServerConfig) -> tuple[str, ...]:
    """The knobs of `config` that differ from their default, each as `group.knob=value` for `--set`."""
    default, found = msgspec.to_builtins(ServerConfig()), msgspec.to_builtins(config)
    return tuple(
        f"{group}.{knob}={_written(value)}"
        for group, knobs in found.items()
        for knob, value in knobs.items()
        if value != default[group][knob]
    )


def _written(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
