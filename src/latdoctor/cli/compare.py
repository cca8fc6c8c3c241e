"""`latdoctor compare`: two servers under the same load, or two recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.named_values import named_values
from latdoctor.cli.options import OutputFormat, OutputOption
from latdoctor.planning.comparison.effect import ComparisonVerdict, Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from latdoctor.load.summary import LoadResult
    from latdoctor.planning.comparison.comparison import Comparison
    from latdoctor.planning.comparison.live import LiveSettings, Run
    from latdoctor.planning.comparison.recorded import Recorded
    from latdoctor.planning.comparison.run_figures import RunFigures

WORSE, INCONCLUSIVE = 3, 4
_MOST_BYTES = 64 << 20


def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A server (http://…), a load result, a folder of these, a log.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same kind, with the other setting.")] = "",
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Instead of B: server A with this setting (repeatable)."),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0, metavar="N", help="Requests per second for servers; well below the limit.")
    ] = 0.0,
    seconds: Annotated[str, typer.Option("--for", metavar="TIME", help="Length of one run.")] = "20s",
    quantity: Annotated[Quantity, typer.Option("--quantity", help="What the verdict is about.")] = Quantity.P99,
    margin: Annotated[
        str, typer.Option("--difference", metavar="SHARE", help="The smallest difference that matters.")
    ] = "10%",
    most: Annotated[int, typer.Option("--pairs", min=2, max=500, metavar="N", help="At most so many pairs.")] = 30,
    slo: Annotated[str, typer.Option("--slo", metavar="TIME", help="Answers within it are goodput.")] = "500ms",
    long_share: Annotated[str, typer.Option("--long", metavar="SHARE", help="Share of long requests.")] = "15%",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of arrivals and contents.")] = 0,
    remote: Annotated[bool, typer.Option("--allow-remote", help="Allow servers on another machine.")] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Say which of two settings is better.

    Two servers get the same requests at the same intervals in turns: five pairs of runs, then as many as the
    difference that matters needs. With --set one server, of a kind whose settings can be changed while it runs, takes
    turns between its present setting and another, and is left as it was. Two results of `latdoctor lab load -o json`
    (or folders of them) are compared in pairs where their schedules are the same; two logs by twenty slices of time,
    with the assumptions printed.

    "No difference shown" means that a difference of the given size is ruled out; too noisy is inconclusive.

    Exit codes: 0 better, or no difference shown · 1 a server does not answer · 2 usage · 3 worse · 4 inconclusive.
    """
    from latdoctor.cli.comparison_text import comparison_text
    from latdoctor.cli.lab import FOR_LOAD, need_extra
    from latdoctor.errors import UsageError
    from latdoctor.evidence.model import to_json
    from latdoctor.planning.comparison.live import LiveSettings

    need_extra((*FOR_LOAD, "scipy"), "plan")
    settings = named_values(values or ())
    if bool(b) == bool(settings):
        raise UsageError("needs either a second side or --set", next_step="latdoctor compare A B")
    are_servers = {one.startswith(("http://", "https://")) for one in (a, b or a)}
    if len(are_servers) > 1 or (settings and False in are_servers):
        raise UsageError("a server cannot be compared with a recording", next_step="name two of the same kind")
    if True in are_servers:
        run = _loads((a, b or a), rate, (seconds, slo), long_share, remote=remote)
        live = LiveSettings(quantity, _share(margin), most, seed)
        found = _live((a, b), live, run) if b else _alternating(a, settings, live, run)
    else:
        found = _recorded(Path(a), Path(b), quantity, _share(margin))
    is_json = output is OutputFormat.JSON
    typer.echo(to_json(found).decode() if is_json else comparison_text(found), nl=not is_json)
    if found.verdict in (ComparisonVerdict.WORSE, ComparisonVerdict.INCONCLUSIVE):
        raise typer.Exit(WORSE if found.verdict is ComparisonVerdict.WORSE else INCONCLUSIVE)


def _share(text: str) -> float:
    """Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.units import parse_share

    try:
        return parse_share(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _live(names: tuple[str, str], settings: LiveSettings, run: Run) -> Comparison:
    from latdoctor.cli.console import notice_console
    from latdoctor.cli.interrupt import ended_by_sigterm
    from latdoctor.planning.comparison.live import LiveComparison

    def log(line: str) -> None:
        notice_console().print(line, soft_wrap=True, highlight=False)

    with ended_by_sigterm():
        return LiveComparison(names, settings, run, log).compare()


def _alternating(address: str, values: Mapping[str, str], settings: LiveSettings, run: Run) -> Comparison:
    """One server as it is (A) and with `values` (B)."""
    from latdoctor.cli.compare_settings import two_settings
    from latdoctor.cli.interrupt import ended_by_sigterm

    b = " ".join(f"{name}={value}" for name, value in values.items())
    with ended_by_sigterm(), two_settings(address.rstrip("/"), values) as turn:

        def run_in_turn(side: int, seed: int) -> RunFigures:
            turn(side)
            return run(side, seed)

        return _live((f"{address} as it is", f"{address} with {b}"), settings, run_in_turn)


def _loads(addresses: tuple[str, str], rate: float, lengths: tuple[str, str], long_share: str, *, remote: bool) -> Run:
    """Sends the load of one run; `lengths`: of a run, and the SLO. Raises UsageError for a load that cannot be."""
    import msgspec

    from latdoctor.errors import UsageError
    from latdoctor.load.mix import Mix
    from latdoctor.load.plan import LoadPhase, LoadPlan, check_address
    from latdoctor.load.process import start_load
    from latdoctor.load.target import recognise
    from latdoctor.planning.comparison.run_figures import figures
    from latdoctor.units import parse_duration

    if not rate:
        raise UsageError("--rate is missing", next_step="about 60 % of the limit: latdoctor capacity measure URL")
    plain = tuple(one.rstrip("/") for one in addresses)
    for one in plain:
        check_address(one, remote=remote)
    targets = [recognise(one, 16) for one in plain]
    try:
        seconds, slo = map(parse_duration, lengths)
        arrivals = {"kind": "poisson", "rate": rate}
        phase = msgspec.convert({"name": "load", "seconds": seconds, "arrivals": arrivals}, LoadPhase)
    except ValueError as error:  # msgspec's own is one of these
        raise UsageError(f"invalid load: {error}") from error
    phase = msgspec.structs.replace(phase, mix=Mix(long_share=_share(long_share)))

    def run(side: int, seed: int) -> RunFigures:
        plan = LoadPlan((phase,), seed=seed, slo_s=slo, warm_up_s=min(2.0, seconds / 5))
        target = targets[side]
        with start_load(plan, target.address, remote=remote, request=target.request) as load:
            return figures(load.wait())

    return run


def _recorded(a: Path, b: Path, quantity: Quantity, margin: float) -> Comparison:
    """Raises UsageError for a file that is neither a load result nor a log with latencies."""
    from latdoctor.errors import UsageError
    from latdoctor.planning.comparison.recorded import compare_loads, compare_requests

    loads = [_load_results(one) for one in (a, b)]
    if all(loads):
        return compare_loads((str(a), str(b)), loads[0], loads[1], quantity, margin)
    if any(loads):
        raise UsageError("a load result cannot be compared with a log", next_step="name two of the same kind")
    return compare_requests(_requests(a), _requests(b), quantity, margin)


def _load_results(path: Path) -> list[LoadResult]:
    """Those of a file, or of the JSON files of a folder; none where it is something else."""
    import msgspec

    from latdoctor.errors import UsageError
    from latdoctor.load.summary import LoadResult
    from latdoctor.regular_file import read_regular

    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found = []
    for one in files:
        try:
            content = read_regular(one, _MOST_BYTES)
        except OSError as error:
            raise UsageError(f"cannot be read ({error.strerror or error})", where=str(one)) from error
        if content.lstrip()[:1] != b"{":
            return []
        try:
            found.append(msgspec.json.decode(content, type=LoadResult))
        except msgspec.MsgspecError:
            return []
    return found


def _requests(path: Path) -> Recorded:
    """The requests of a log. Raises UsageError where it has none."""
    from latdoctor.case_from_bundle import seen
    from latdoctor.collectors import COLLECTORS
    from latdoctor.collectors.base import CollectRequest
    from latdoctor.collectors.runner import SystemClock, collect_bundle
    from latdoctor.detectors.tail_attribution import LATENCY
    from latdoctor.errors import UsageError
    from latdoctor.evidence.bundle import Context
    from latdoctor.planning.comparison.recorded import Recorded

    evidence, _ = seen(collect_bundle(COLLECTORS, CollectRequest(logs=(path,)), Context(path.name), SystemClock()))
    series = [one for one in evidence.series if one.signal == LATENCY]
    if not series:
        raise UsageError("has no requests with times and latencies", where=str(path))
    pairs = sorted((at, took) for one in series for at, took in zip(one.times, one.values, strict=True))
    return Recorded(path.name, tuple(at for at, _ in pairs), tuple(took for _, took in pairs))
