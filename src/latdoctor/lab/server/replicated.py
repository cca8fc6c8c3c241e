"""`latdoctor lab serve --replicas N`: the same server several times over on this machine, behind a router."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from latdoctor.errors import UsageError
from latdoctor.lab.server import routing
from latdoctor.lab.server.config import ServerConfig
from latdoctor.lab.server.fleet import RouterConfig
from latdoctor.lab.server.guard import VARIABLE
from latdoctor.lab.server.lifecycle import DRAIN_SECONDS, GRACE_SECONDS, ServeOptions
from latdoctor.lab.server.replicas import Command, Patience, free_ports
from latdoctor.web.address import is_loopback

GROUP = "router."


def serve(options: ServeOptions, replicas: int, config: RouterConfig, agent: routing.Agent | None = None) -> None:
    """Serves until it is told to stop; the addresses of the router and of its replicas are told on stdout.

    Raises UsageError, and OperationError where the port cannot be had or a replica does not become ready.
    """
    import uvloop

    if not options.allow_remote and not is_loopback(options.host):
        raise UsageError(
            f"{options.host} can be reached from other machines", next_step="--allow-remote, if that is what you want"
        )
    router = routing.RouterOptions(
        commands(options, replicas),
        config,
        Patience(drain=GRACE_SECONDS + DRAIN_SECONDS + 5),  # as long as a replica takes at most by itself
        options.host,
        options.port,
        options.admin_token,
        agent,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(routing.serve(router, announce=_announce))


def commands(options: ServeOptions, replicas: int) -> tuple[Command, ...]:
    """How each replica is started: on a free port of its own, all else alike. The token goes by the environment."""
    log, agent = options.access_log, ("--fault-agent",) if options.agent else ()
    shared = (*agent, *(f"--set={setting}" for setting in settings(options.config)))
    return tuple(
        Command(
            str(number),
            (
                *(sys.executable, "-m", "latdoctor", "lab", "serve", f"--port={port}", f"--replica={number}"),
                *shared,
                *((f"--access-log={log}.{number}",) if log else ()),
            ),
            f"http://127.0.0.1:{port}",
            environment={VARIABLE: options.admin_token},
        )
        for number, port in enumerate(free_ports(replicas))
    )


def settings(config: ServerConfig) -> tuple[str, ...]:
    """The knobs of `config` that have not their default, each as `group.knob=value`, as `configured` reads them."""
    default, found = msgspec.to_builtins(ServerConfig()), msgspec.to_builtins(config)
    return tuple(
        f"{group}.{knob}={_written(value)}"
        for group, knobs in found.items()
        for knob, value in knobs.items()
        if value != default[group][knob]
    )


def router_config(given: Sequence[str]) -> tuple[RouterConfig, tuple[str, ...]]:
    """The router's configuration by those of the settings that are for it, and the others. Raises UsageError.

    Weights are written `router.weights=0:9,1:1`.
    """
    own: dict[str, Any] = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if name.startswith(GROUP):
            if not equals:
                raise UsageError(f"{setting!r} sets no knob", next_step=f"write {GROUP}KNOB=VALUE")
            knob = name.removeprefix(GROUP)
            own[knob] = _weights(value) if knob == "weights" else value
    try:
        config = msgspec.convert(own, RouterConfig, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"the router's configuration is not valid: {error}") from error
    return config, tuple(setting for setting in given if not setting.startswith(GROUP))


def _weights(text: str) -> dict[str, str]:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(colon for _, colon, _ in pairs):
        raise UsageError(f"{text!r} are no weights", next_step=f"write {GROUP}weights=0:9,1:1")
    return {name.strip(): weight for name, _, weight in pairs}


def _written(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _announce(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
