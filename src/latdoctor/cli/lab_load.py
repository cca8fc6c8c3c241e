"""`latdoctor lab load`: sends a load and prints the latencies."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.load_run import CONTROL_OPTION, LoadFormat

if TYPE_CHECKING:
    from latdoctor.load.plan import LoadPlan


class ArrivalProcess(StrEnum):
    """Arrival processes that need a rate only; a plan file has the others."""

    POISSON = "poisson"
    CONSTANT = "constant"
    GAMMA = "gamma"


class Retry(StrEnum):
    """The retry policy of the clients."""

    NONE = "none"
    IMMEDIATE = "immediate"
    BACKOFF = "backoff"


def load(
    server: Annotated[str, typer.Argument(metavar="URL", help="The reference server, such as http://127.0.0.1:8080.")],
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Phases of load in YAML, instead of a rate.")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Requests per second.")] = 50.0,
    seconds: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to send.")] = "10s",
    arrivals: Annotated[
        ArrivalProcess, typer.Option("--arrivals", help="The arrival process.")
    ] = ArrivalProcess.POISSON,
    long_share: Annotated[str, typer.Option("--long", metavar="SHARE", help="Share of long requests.")] = "15%",
    audio_share: Annotated[str, typer.Option("--audio", metavar="SHARE", help="Share of audio requests.")] = "30%",
    malformed_share: Annotated[
        str, typer.Option("--malformed", metavar="SHARE", help="Share of malformed bodies.")
    ] = "0%",
    sessions: Annotated[int, typer.Option("--sessions", metavar="N", help="Conversations; 0: none.")] = 0,
    retry: Annotated[
        Retry, typer.Option("--retry", help="What clients do when a request is refused or fails.")
    ] = Retry.NONE,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Timeout of an attempt.")] = "10s",
    slo: Annotated[str, typer.Option("--slo", metavar="TIME", help="Answers within it count as goodput.")] = "500ms",
    warm_up: Annotated[str, typer.Option("--warm-up", metavar="TIME", help="Sent first, not measured.")] = "0s",
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="The same seed gives the same load.")] = None,
    output: Annotated[LoadFormat, typer.Option("--output", "-o", help="Format of the result.")] = LoadFormat.TEXT,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", min=0, max=65535, metavar="N", help="Serve the client's metrics page; 0: a free port."
        ),
    ] = None,
    control: Annotated[Path | None, CONTROL_OPTION] = None,
    remote: Annotated[bool, typer.Option("--allow-remote", help="Allow a server on another machine.")] = False,
) -> None:
    """Send an open-loop load and measure client latency.

    The schedule is fixed before the run: a slow server does not delay later requests, and latency counts from the time
    a request was due. With --plan, only --seed, --output, --metrics-port, --control and --allow-remote of the other
    options apply; a plan may also have users, who hold conversations (docs/load.md). Ctrl-C stops sending and prints
    the result so far.

    --metrics-port serves the client's metrics (latency, bytes, retries) during the run: `latdoctor diagnose --server
    SERVER --server http://127.0.0.1:N` can then separate network time from server time.

    Exit codes: 0 measured · 1 no server, or the generator failed · 2 usage or an invalid plan · 4 measured, but the run
    is spoiled.
    """
    from latdoctor.cli.lab import FOR_LOAD, need_extra
    from latdoctor.cli.load_run import finish, run_plan

    need_extra(FOR_LOAD)
    if plan is not None:
        load_plan = _from_file(plan, seed)
    else:
        mix = {"long_share": long_share, "audio_share": audio_share, "malformed_share": malformed_share}
        times = {"seconds": seconds, "timeout_s": timeout, "slo_s": slo, "warm_up_s": warm_up}
        load_plan = _from_options({"kind": arrivals.value, "rate": rate}, mix, sessions, times, retry.value, seed or 0)
    result = run_plan(load_plan, server, remote=remote, metrics_port=metrics_port, control=control)
    finish(result, output)


def _from_file(path: Path, seed: int | None) -> LoadPlan:
    import msgspec

    from latdoctor.load import plan as plans

    read = plans.read(path)
    return read if seed is None else msgspec.structs.replace(read, seed=seed)


def _from_options(
    arrivals: dict[str, object], mix: dict[str, str], sessions: int, times: dict[str, str], retry: str, seed: int
) -> LoadPlan:
    """A plan of one phase. Raises UsageError."""
    import msgspec

    from latdoctor.errors import UsageError
    from latdoctor.load.plan import LoadPlan
    from latdoctor.units import parse_duration, parse_share

    try:
        shares = {name: parse_share(text) for name, text in mix.items()}
        lengths = {name: parse_duration(text) for name, text in times.items()}
        phase = {
            "name": "load",
            "seconds": lengths.pop("seconds"),
            "arrivals": arrivals,
            "mix": {**shares, "sessions": sessions},
        }
        return msgspec.convert({"phases": [phase], "seed": seed, "retry": {"kind": retry}, **lengths}, LoadPlan)
    except ValueError as error:  # msgspec's own is one of these
        raise UsageError(f"invalid load: {error}") from error
