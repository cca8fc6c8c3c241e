"""`latdoctor lab proxy`: a network connection that can be spoiled while it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latdoctor.errors import UsageError


def proxy(
    to: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="Where everything is passed on to.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="The port; 0: a free one.")] = 0,
    control_port: Annotated[
        int, typer.Option("--control-port", min=0, max=65535, metavar="N", help="Of the control; 0: a free one.")
    ] = 0,
    admin_token_file: Annotated[
        Path | None,
        typer.Option("--admin-token-file", metavar="FILE", help="The control's token; else LATDOCTOR_ADMIN_TOKEN."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Draws the jitter, and who is met.")] = 0,
) -> None:
    """Pass TCP connections on, and spoil them on request.

    Listens on this machine only. The control adds and removes toxics: latency with jitter, bandwidth, reset, blackhole
    and slow close. Each goes by itself after its lifetime. The addresses are written to standard output: HOST:PORT of
    the proxy, then the control's URL.

    Exit codes: 0 stopped in order · 1 a port cannot be had · 2 usage.
    """
    from latdoctor.cli.lab_extra import need_extra

    need_extra()
    from latdoctor.lab.faults.proxying import ProxyOptions, run
    from latdoctor.lab.server.guard import VARIABLE, admin_token

    token = admin_token(admin_token_file)
    if not token:
        raise UsageError("the proxy's control needs a token", next_step=f"set {VARIABLE} or give --admin-token-file")
    host, upstream = address(to)
    run(ProxyOptions(host, upstream, token, port, control_port, seed), announce=_say)


def address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[::1]:PORT`, with or without `http://`. Raises UsageError."""
    rest = text.removeprefix("http://").removesuffix("/")
    host, _, port = rest.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise UsageError(f"{text!r} is no address", next_step="write HOST:PORT, as 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _say(line: str) -> None:
    typer.echo(line)
