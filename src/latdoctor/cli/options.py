"""Options that several commands share, and what was given of them as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from latdoctor.errors import UsageError


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """By the option that names them."""

    metrics: tuple[Path, ...] = ()
    trace: tuple[Path, ...] = ()
    nsys: tuple[Path, ...] = ()
    tensorrt: tuple[Path, ...] = ()
    torch_memory: tuple[Path, ...] = ()
    log: tuple[Path, ...] = ()
    changes: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that was named, pages first."""
        captures = (*self.trace, *self.nsys, *self.tensorrt, *self.torch_memory)
        return (*self.metrics, *captures, *self.log, *self.changes)


# Whether a file can be read is found out by whoever reads it (`readable=False`): one bad source stops no other.
_SOURCES = "Sources (each may be repeated)"

Server = Annotated[
    list[str] | None,
    typer.Option(
        "--server", metavar="URL", help="A server's metrics page, watched over the window.", rich_help_panel=_SOURCES
    ),
]
Metrics = Annotated[
    list[Path] | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        readable=False,
        help="A saved metrics page; two are first and last.",
        rich_help_panel=_SOURCES,
    ),
]
Prometheus = Annotated[
    str | None,
    typer.Option(
        "--prometheus", metavar="URL", help="A Prometheus server, asked for what it kept.", rich_help_panel=_SOURCES
    ),
]
Select = Annotated[
    str | None,
    typer.Option(
        "--select", metavar="MATCHERS", help="Which of its series, such as '{job=\"vllm\"}'.", rich_help_panel=_SOURCES
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="What it and the logs kept from then on: 2h, 02:30 (default 1h).",
        rich_help_panel=_SOURCES,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="The end of what is judged of that: 10min, 03:10 (default now).",
        rich_help_panel=_SOURCES,
    ),
]
Trace = Annotated[
    list[Path] | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        readable=False,
        help="A torch profiler trace (.json, .json.gz).",
        rich_help_panel=_SOURCES,
    ),
]
Nsys = Annotated[
    list[Path] | None,
    typer.Option(
        "--nsys",
        metavar="FILE",
        readable=False,
        help="An Nsight Systems export (.sqlite), a database of nvprof, or a CSV table of either.",
        rich_help_panel=_SOURCES,
    ),
]
TensorRT = Annotated[
    list[Path] | None,
    typer.Option(
        "--tensorrt",
        metavar="FILE",
        readable=False,
        help="What trtexec wrote of an engine (layers, profile, times, log); two are compared.",
        rich_help_panel=_SOURCES,
    ),
]
TorchMemory = Annotated[
    list[Path] | None,
    typer.Option(
        "--torch-memory",
        metavar="FILE",
        readable=False,
        help="A memory snapshot (.pickle) or memory_stats (.json) of torch.cuda.",
        rich_help_panel=_SOURCES,
    ),
]
Log = Annotated[
    list[Path] | None,
    typer.Option(
        "--log",
        metavar="FILE",
        readable=False,
        help="A driver, application or access log.",
        rich_help_panel=_SOURCES,
    ),
]
LogPattern = Annotated[
    str | None,
    typer.Option(
        "--log-pattern",
        metavar="TEXT",
        help="How access log lines are written, if in no common form: '{time} {status} {ms}'.",
        rich_help_panel=_SOURCES,
    ),
]
Changes = Annotated[
    list[Path] | None,
    typer.Option(
        "--changes",
        metavar="FILE",
        readable=False,
        help="What was changed when: lines that begin with a time, or JSON.",
        rich_help_panel=_SOURCES,
    ),
]
Pid = Annotated[
    int | None, typer.Option("--pid", min=1, metavar="N", help="Watch this process too.", rich_help_panel=_SOURCES)
]
Nvml = Annotated[
    bool | None,
    typer.Option(
        "--nvml/--no-nvml",
        help="Ask this machine's GPU driver (default: where the target runs here).",
        rich_help_panel=_SOURCES,
    ),
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="A target of latdoctor.yaml, or a name for this look.")
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="TIME",
        help="How long to watch live sources (default 10s), or what is judged of a history (5min).",
    ),
]
Slo = Annotated[str | None, typer.Option("--slo", metavar="TIME", help="The P99 that was promised, such as 500ms.")]
SloErrors = Annotated[
    str | None, typer.Option("--slo-errors", metavar="SHARE", help="The error ratio that was promised, such as 1%.")
]
NoRedact = Annotated[
    bool, typer.Option("--no-redact", help="Keep prompts, secrets, addresses and user ids in the bundle.")
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", readable=False, help="Write the answer as a page to a new file, too."),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        metavar="FILE",
        readable=False,
        help="What the target is like when healthy (baseline record).",
    ),
]
Incident = Annotated[
    str | None,
    typer.Option("--incident", metavar="ID", help="The incident that this is for (default: the open one, if any)."),
]
NoIncident = Annotated[bool, typer.Option("--no-incident", help="It is for no incident: nothing is journaled.")]
Playbooks = Annotated[
    list[Path] | None,
    typer.Option(
        "--playbooks", metavar="FOLDER", readable=False, help="A folder of your own playbooks beside the shipped ones."
    ),
]
Rules = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules", metavar="FOLDER", readable=False, help="A folder of your own rules beside the shipped ones."
    ),
]


@dataclass(frozen=True, slots=True)
class Given(NamedFiles):
    """What the user asked to look at, as given on the command line."""

    server: tuple[str, ...] = ()
    prometheus: str = ""
    select: str = ""
    since: str = ""
    until: str = ""
    log_pattern: str = ""
    pid: int | None = None
    nvml: bool | None = None
    target: str = ""
    window: str = ""
    slo: str = ""
    slo_errors: str = ""
    baseline: Path | None = None

    @property
    def any_source(self) -> bool:
        return bool(self.server or self.prometheus or self.files or self.pid or self.nvml)


def given(
    server: list[str] | None,
    metrics: list[Path] | None,
    trace: list[Path] | None,
    log: list[Path] | None,
    *,
    prometheus: str | None = None,
    select: str | None = None,
    since: str | None = None,
    until: str | None = None,
    log_pattern: str | None = None,
    changes: list[Path] | None = None,
    nsys: list[Path] | None = None,
    tensorrt: list[Path] | None = None,
    torch_memory: list[Path] | None = None,
    pid: int | None = None,
    nvml: bool | None = None,
    baseline: Path | None = None,
    target: str | None = None,
    window: str | None = None,
    slo: str | None = None,
    slo_errors: str | None = None,
) -> Given:
    """The shared options as one value (typer gives None for one not used). Raises UsageError for an empty one."""
    texts = {
        "--target": target,
        "--window": window,
        "--slo": slo,
        "--slo-errors": slo_errors,
        "--prometheus": prometheus,
        "--select": select,
        "--since": since,
        "--until": until,
        "--log-pattern": log_pattern,
    }
    for option, text in (*texts.items(), *(("--server", url) for url in server or ())):
        if text is not None and not text.strip():
            raise UsageError(f"{option} was given without a value", next_step=f"write {option} VALUE, or leave it out")
    return Given(
        server=tuple(server or ()),
        metrics=tuple(metrics or ()),
        trace=tuple(trace or ()),
        nsys=tuple(nsys or ()),
        tensorrt=tuple(tensorrt or ()),
        torch_memory=tuple(torch_memory or ()),
        log=tuple(log or ()),
        prometheus=prometheus or "",
        select=select or "",
        since=since or "",
        until=until or "",
        log_pattern=log_pattern or "",
        changes=tuple(changes or ()),
        pid=pid,
        nvml=nvml,
        target=target or "",
        window=window or "",
        slo=slo or "",
        slo_errors=slo_errors or "",
        baseline=baseline,
    )
