"""`latdoctor lab load-fit` and `load-replay`: loads from the requests of an access log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from latdoctor.cli.load_run import LoadFormat

if TYPE_CHECKING:
    from latdoctor.collectors.access_log.request_records import RequestRecords
    from latdoctor.load.recording.distribution_fit import Fitted
    from latdoctor.load.recording.plan_fit import FittedPlan
    from latdoctor.load.recording.requests import Recording

_LOG = typer.Argument(metavar="LOG", help="An access log, or JSON lines with times.")
_FROM = typer.Option("--from", metavar="TIME", help="Begin so long after its first request.")
_TO = typer.Option("--to", metavar="TIME", help="End so long after its first request.")
_PATTERN = typer.Option("--log-pattern", metavar="PATTERN", help="The form of its lines, as for diagnose.")


def load_fit(
    log: Annotated[Path, _LOG],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The plan to write.")],
    begin: Annotated[str, _FROM] = "0s",
    end: Annotated[str | None, _TO] = None,
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="A session without a request for so long has ended.")
    ] = "30min",
    phases: Annotated[int, typer.Option("--phases", min=1, max=50, metavar="N", help="Phases at most.")] = 12,
    log_pattern: Annotated[str, _PATTERN] = "",
) -> None:
    """Fit a load plan to an access log.

    Phases where the rate changed, the arrival process of each, and where the log has them: turns of a session, times to
    think, and the lengths of requests. Each distribution is the simplest that is close to the log, else its quantiles;
    the distance is printed. What the log did not show is printed too, is in the file, and stays the plan's default.

    Exit codes: 0 written · 1 the log has no requests with times · 2 usage, or the plan cannot be written.
    """
    from latdoctor.cli.console import result_console
    from latdoctor.load.plan_file import plan_yaml
    from latdoctor.load.recording.plan_fit import fit_plan
    from latdoctor.output_file import must_take_a_file, write_text

    must_take_a_file(output, "the plan")
    records, recording = read_recording(log, begin, end, log_pattern)
    fitted = fit_plan(recording, idle_s=_seconds(idle, "--idle"), most_phases=phases)
    head = f"{len(recording.requests)} requests over {recording.seconds:.1f} s of {log.name}"
    lines = [head, *_figures(fitted), *_not_read(records)]
    missing = [f"not in the log: {note.text}" for note in fitted.notes]
    write_text(output, plan_yaml(fitted.plan, (f"Fitted to {head}.", *lines[1:], *missing)), "the plan")
    console = result_console()
    for line in (*lines, *missing):
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"wrote {output}. Next: latdoctor lab load http://127.0.0.1:8080 --plan {output}", soft_wrap=True)


def load_replay(
    server: Annotated[str, typer.Argument(metavar="URL", help="The reference server, such as http://127.0.0.1:8080.")],
    log: Annotated[Path, _LOG],
    speed: Annotated[
        float, typer.Option("--speed", min=0.001, max=1000, metavar="N", help="Replay so many times as fast.")
    ] = 1.0,
    begin: Annotated[str, _FROM] = "0s",
    end: Annotated[str | None, _TO] = None,
    most: Annotated[
        int, typer.Option("--most", min=1, max=500_000, metavar="N", help="Send so many requests at most.")
    ] = 50_000,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Timeout of an attempt.")] = "10s",
    slo: Annotated[str, typer.Option("--slo", metavar="TIME", help="Answers within it count as goodput.")] = "500ms",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the contents.")] = 0,
    log_pattern: Annotated[str, _PATTERN] = "",
    output: Annotated[LoadFormat, typer.Option("--output", "-o", help="Format of the result.")] = LoadFormat.TEXT,
    remote: Annotated[bool, typer.Option("--allow-remote", help="Allow a server on another machine.")] = False,
) -> None:
    """Replay an access log, at its speed or another.

    The same order, gaps, sessions and lengths as in the log; texts are filler, and all requests go to one path. Each is
    sent at its time, whatever the answers to those before. Prints how late requests were sent, measured from the times
    of the log.

    Exit codes: 0 measured · 1 no server, or the log has no requests with times · 2 usage · 4 measured, but the run is
    spoiled.
    """
    import msgspec

    from latdoctor.cli.console import notice_console
    from latdoctor.cli.lab import FOR_LOAD, need_extra
    from latdoctor.cli.load_run import finish, run_plan
    from latdoctor.load.recording.replay_plan import replay_plan

    need_extra(FOR_LOAD)
    records, recording = read_recording(log, begin, end, log_pattern)
    made = replay_plan(recording, speed, most)
    limits = {"timeout_s": _seconds(timeout, "--timeout"), "slo_s": _seconds(slo, "--slo")}
    plan = msgspec.structs.replace(made.plan, seed=seed, **limits)
    console = notice_console()
    about = f"replaying {made.requests} requests of {made.sessions} sessions in {plan.seconds:.1f} s"
    more = f"; the next {made.left_out} are left out (--most {most})" if made.left_out else ""
    for line in (about + more, *_not_read(records)):
        console.print(line, soft_wrap=True, markup=False)
    result = run_plan(plan, server, remote=remote)
    late = result.generator
    if late.late_p50 is not None and late.late_p99 is not None and late.late_max is not None:
        times = ", ".join(f"{value * 1000:.1f} ms ({name})" for name, value in
                          (("P50", late.late_p50), ("P99", late.late_p99), ("longest", late.late_max)))  # fmt: skip
        console.print(f"sent after the times of the log by {times}", soft_wrap=True)
    finish(result, output)


def read_recording(
    log: Path, begin: str = "0s", end: str | None = None, pattern: str = ""
) -> tuple[RequestRecords, Recording]:
    """The chosen part of the log. Raises SourceError, UsageError."""
    from latdoctor.collectors.access_log.request_records import read_records
    from latdoctor.load.recording.replay_plan import cut
    from latdoctor.load.recording.requests import RecordedRequest, Recording

    since = _seconds(begin, "--from", zero=True)
    until = float("inf") if end is None else _seconds(end, "--to")
    found = read_records(log, pattern)
    first = found.records[0].arrived
    requests = tuple(
        RecordedRequest(
            one.arrived - first,
            None if one.ended is None else one.ended - first,
            *(one.status, one.session, one.tokens, one.route),
        )
        for one in found.records
    )
    seconds = max(requests[-1].at, 0.001)
    return found, cut(Recording(requests, seconds, found.coarse), since, until)


def _seconds(text: str, where: str, *, zero: bool = False) -> float:
    """Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.units import parse_duration

    try:
        found = parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error), where=where) from error
    if found < 0 or (found == 0 and not zero):
        raise UsageError(f"must be greater than 0 (got {text!r})", where=where)
    return found


def _figures(fitted: FittedPlan) -> Iterator[str]:
    for planned, phase in zip(fitted.plan.phases, fitted.phases, strict=True):
        what = "users" if planned.users else "requests"
        kind = type(phase.arrivals).__name__.lower()
        close = "" if phase.distance is None else f", gaps KS {phase.distance:.3f}"
        rate = phase.count / phase.seconds
        yield f"{planned.name}: {phase.seconds:.1f} s, {phase.count} {what}, {rate:.3g}/s, {kind}{close}"
    if fitted.turns is not None:
        yield f"turns of {fitted.sessions} sessions: {_distribution(fitted.turns)}"
    if fitted.think_s is not None:
        yield f"times to think: {_distribution(fitted.think_s)} s"


def _distribution(one: Fitted) -> str:
    kind = type(one.distribution).__name__.lower()
    return f"{kind}, mean {one.distribution.mean:.3g}, KS {one.distance:.3f} of {one.values}"


def _not_read(records: RequestRecords) -> Iterator[str]:
    """What of the log is not among its requests."""
    counts = {
        "lines could not be read as requests": records.unreadable,
        "requests have no time": records.untimed,
        "probes are left out": records.probes,
        "further requests were not read": records.beyond,
    }
    yield from (f"{count} {what}" for what, count in counts.items() if count)
