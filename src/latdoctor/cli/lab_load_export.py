"""`latdoctor lab load-export`: a load plan for Locust or k6."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latdoctor.load.plan import LoadPlan
    from latdoctor.load.request_template import RequestTemplate


_MAX_BODY = 1 << 20  # bytes


class OtherGenerator(StrEnum):
    """The load generators that a plan can be exported to."""

    LOCUST = "locust"
    K6 = "k6"


def load_export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Phases of load in YAML, as for `lab load --plan`.")],
    to: Annotated[OtherGenerator, typer.Option("--to", help="The load generator.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")],
    times: Annotated[
        float, typer.Option("--times", metavar="N", min=0.001, max=10_000, help="Multiply all rates of the plan.")
    ] = 1.0,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="Where requests go; default: the reference server's.")
    ] = None,
    body: Annotated[
        Path | None, typer.Option("--body", metavar="FILE", help="JSON to send; $PROMPT in it becomes words.")
    ] = None,
) -> None:
    """Write a load plan as a locustfile or a k6 script.

    For rates that one process, or one machine, does not send.

    With Locust, all workers together send the schedule of `latdoctor lab load`: the same requests at the same times. k6
    keeps rates, mix, timeouts, retries and the SLO, as a threshold. What it cannot keep is printed, and is in the file.
    Credentials are read from the environment when the file runs, and are never in it.

    Exit codes: 0 written · 2 usage, an invalid plan, or the file cannot be written.
    """
    from latdoctor.cli.console import notice_console
    from latdoctor.cli.lab import FOR_LOAD, need_extra
    from latdoctor.load import plan as plans
    from latdoctor.output_file import must_take_a_file, write_text

    need_extra(FOR_LOAD)
    must_take_a_file(output, "the exported load")
    read = plans.read(plan)
    text, not_kept = _exported(read, to, times, _request(path, body))
    write_text(output, text, "the exported load")
    console = notice_console()
    console.print(f"wrote {output}: {_size(read, times)}", soft_wrap=True)
    for one in not_kept:
        console.print(f"not as with lab load: {one}", soft_wrap=True)
    console.print(f"Next: {_next(to, output)}", soft_wrap=True)


def _exported(
    plan: LoadPlan, to: OtherGenerator, times: float, request: RequestTemplate | None
) -> tuple[str, tuple[str, ...]]:
    """The file, and what it does not keep of the plan. Raises UsageError."""
    from latdoctor.load.drivers.differences import TEXT, Driver, differences
    from latdoctor.load.drivers.k6_script import k6_script
    from latdoctor.load.drivers.locust_file import locust_file

    write = k6_script if to is OtherGenerator.K6 else locust_file
    found = differences(plan, Driver(to.value), times, request)
    return write(plan, times=times, request=request), tuple(TEXT[one] for one in found)


def _request(path: str | None, body: Path | None) -> RequestTemplate | None:
    """The request of a server other than the reference server. Raises UsageError."""
    from latdoctor.errors import UsageError
    from latdoctor.load.target import plain
    from latdoctor.regular_file import read_regular

    if path is None and body is None:
        return None
    if path is None or body is None:
        raise UsageError("--path and --body belong together")
    try:
        content = read_regular(body, _MAX_BODY)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=str(body)) from error
    if len(content) > _MAX_BODY:
        raise UsageError(f"has more than {_MAX_BODY} bytes", where=str(body))
    return plain("", path, text).request


def _size(plan: LoadPlan, times: float) -> str:
    from latdoctor.load.drivers.share import expected_requests, highest_rate

    about = f"about {expected_requests(plan, times)} requests in {plan.seconds:g} s"
    if any(phase.users for phase in plan.phases):
        return f"{about}; those of users depend on the answers"
    return f"{about}, at most {max(highest_rate(phase) for phase in plan.phases) * times:g} per second"


def _next(to: OtherGenerator, output: Path) -> str:
    if to is OtherGenerator.K6:
        return f"LOAD_TARGET=http://127.0.0.1:8080 k6 run {output}"
    return f"locust -f {output} --headless --host http://127.0.0.1:8080; several machines: docs/load-at-scale.md"
