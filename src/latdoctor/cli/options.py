"""Command-line options that several commands share.

The options that name sources, and say how to read them, are the fields of `SourceOptions`. A command that takes them
has one parameter of that type and the decorator `source_options`, which turns each field into an option.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from latdoctor.errors import UsageError
from latdoctor.http.safe_address import mask_credentials
from latdoctor.sanitize import clean

_SOURCES = "Sources (each may be repeated)"


def _option(*names: str, default: object = (), panel: str | None = _SOURCES, **settings: Any) -> Any:
    """A field of SourceOptions with its option. Its collector reports an unreadable file: one bad file is a gap."""
    return field(
        default=default, metadata={"option": typer.Option(*names, rich_help_panel=panel, readable=False, **settings)}
    )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The sources to read, and how, as typed on the command line; empty where an option was not used."""

    server: tuple[str, ...] = _option("--server", metavar="URL", help="A server's metrics page, read over the window.")
    metrics: tuple[Path, ...] = _option("--metrics", metavar="FILE", help="A saved metrics page; two: first and last.")
    trace: tuple[Path, ...] = _option("--trace", metavar="FILE", help="A torch profiler trace (.json, .json.gz).")
    nsys: tuple[Path, ...] = _option(
        "--nsys",
        metavar="FILE",
        help="An Nsight Systems export (.sqlite), an nvprof database, or a CSV table of either.",
    )
    tensorrt: tuple[Path, ...] = _option(
        "--tensorrt",
        metavar="FILE",
        help="Output of trtexec for an engine (layers, profile, times, log); two are compared.",
    )
    torch_memory: tuple[Path, ...] = _option(
        "--torch-memory",
        metavar="FILE",
        help="A memory snapshot (.pickle) or memory_stats (.json) of torch.cuda.",
    )
    log: tuple[Path, ...] = _option("--log", metavar="FILE", help="A driver, application or access log.")
    document: tuple[Path, ...] = _option(
        "--document", metavar="FILE", help="Output of a command, result of a load test or export, as text."
    )
    prometheus: str = _option("--prometheus", default="", metavar="URL", help="A Prometheus server, for its history.")
    kube: tuple[str, ...] = _option(
        "--kube",
        metavar="NAMESPACE/NAME",
        help="A Deployment, StatefulSet or other workload on Kubernetes, or a Pod, with the metrics of its Pods.",
    )
    kube_context: str = _option(
        "--kube-context", default="", metavar="NAME", help="The kubeconfig's context for --kube (default: the current)."
    )
    kubeconfig: Path | None = _option(
        "--kubeconfig", default=None, metavar="FILE", help="The kubeconfig for --kube (default: as kubectl)."
    )
    select: str = _option(
        "--select", default="", metavar="MATCHERS", help="Which of its series, such as '{job=\"vllm\"}'."
    )
    since: str = _option(
        "--since",
        default="",
        metavar="TIME",
        help="Read history and logs from then: 2h, 02:30 (before --until; default 1h).",
    )
    until: str = _option(
        "--until", default="", metavar="TIME", help="The end of the diagnosed period: 10min, 03:10 (default now)."
    )
    log_pattern: str = _option(
        "--log-pattern",
        default="",
        metavar="TEXT",
        help="The format of access log lines, if not a common one: '{time} {status} {ms}'.",
    )
    changes: tuple[Path, ...] = _option(
        "--changes", metavar="FILE", help="Changes with their times: lines that begin with a time, or JSON."
    )
    pid: int | None = _option("--pid", default=None, min=1, metavar="N", help="Also observe this process.")
    nvml: bool | None = _option(
        "--nvml/--no-nvml", default=None, help="Read this machine's GPU driver (default: if the target runs here)."
    )
    target: str = _option(
        "--target",
        default="",
        panel=None,
        metavar="NAME",
        help="A target of latdoctor.yaml, or a name for these sources.",
    )
    window: str = _option(
        "--window",
        default="",
        panel=None,
        metavar="TIME",
        help="How long to observe live sources (default 10s), or the diagnosed part of a history (5min).",
    )
    slo: str = _option("--slo", default="", panel=None, metavar="TIME", help="The P99 objective, such as 500ms.")
    slo_errors: str = _option(
        "--slo-errors", default="", panel=None, metavar="SHARE", help="The error ratio objective, such as 1%."
    )
    baseline: Path | None = _option(
        "--baseline",
        default=None,
        panel=None,
        metavar="FILE",
        help="The target's healthy values (baseline record).",
    )

    @property
    def files(self) -> tuple[Path, ...]:
        """Every named file, metrics pages first."""
        captures = (*self.trace, *self.nsys, *self.tensorrt, *self.torch_memory)
        return (*self.metrics, *captures, *self.log, *self.document, *self.changes)

    @property
    def files_name(self) -> str:
        """`kernel.log`, or `kernel.log and 2 more`: the name of what the named files, at least one, are about."""
        first, *others = dict.fromkeys(self.files)
        return f"{first.name} and {len(others)} more" if others else first.name

    @property
    def any_source(self) -> bool:
        return bool(self.server or self.prometheus or self.kube or self.files or self.pid or self.nvml)


def as_arguments(sources: SourceOptions, *, without: tuple[str, ...] = ()) -> str:
    """`--log access.log --since 1h`: the options as they are typed, for a command to run next; credentials masked."""
    words: list[str] = []
    for one in fields(SourceOptions):
        value = getattr(sources, one.name)
        if value in (None, "", ()) or one.name in without:
            continue
        option = str(one.metadata["option"].default)
        if isinstance(value, bool):
            words.append(option.split("/")[0 if value else 1])
            continue
        for part in value if isinstance(value, tuple) else (value,):
            words += [option, shlex.quote(mask_credentials(clean(str(part), 400)))]
    return " ".join(words)


# A field's type → the type that typer parses; None is an option that was not used.
_PARSED = {
    tuple[str, ...]: list[str] | None,
    tuple[Path, ...]: list[Path] | None,
    str: str | None,
    int | None: int | None,
    bool | None: bool | None,
    Path | None: Path | None,
}


def source_options(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replaces the parameter `sources` of a command by an option for each field of SourceOptions but `without`."""
    types = get_type_hints(SourceOptions)
    taken = [one for one in fields(SourceOptions) if one.name not in without]
    parameters = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_PARSED[types[one.name]], one.metadata["option"]],
        )
        for one in taken
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            sources = _sources({one.name: values.pop(one.name) for one in taken}, taken)
            command(**values, sources=sources)

        expanded: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            expanded += parameters if parameter.name == "sources" else [own]
        run.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]  # read by inspect.signature
        run.__annotations__ = {one.name: one.annotation for one in expanded}
        return run

    return decorate


def _sources(values: dict[str, Any], taken: list[Field[Any]]) -> SourceOptions:
    """Raises UsageError for an option with an empty value."""
    used = {name: value for name, value in values.items() if value is not None}
    for one in taken:
        value = used.get(one.name)
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and not text.strip() for text in texts):
            option = one.metadata["option"].default
            raise UsageError(f"{option} has an empty value", next_step=f"write {option} VALUE, or omit it")
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in used.items()}
    return SourceOptions(**plain)


Target = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="A target of latdoctor.yaml, or a name for this one.")
]
Slo = Annotated[str | None, typer.Option("--slo", metavar="TIME", help="The P99 objective, such as 500ms.")]
SloErrors = Annotated[
    str | None, typer.Option("--slo-errors", metavar="SHARE", help="The error ratio objective, such as 1%.")
]
NoRedact = Annotated[
    bool, typer.Option("--no-redact", help="Keep prompts, secrets, addresses and user ids in the bundle.")
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", readable=False, help="Also write the answer as an HTML page to a new file."),
]
Incident = Annotated[
    str | None, typer.Option("--incident", metavar="ID", help="The incident to record this in (default: the open one).")
]
NoIncident = Annotated[bool, typer.Option("--no-incident", help="Record this in no incident.")]
Playbooks = Annotated[
    list[Path] | None,
    typer.Option(
        "--playbooks", metavar="FOLDER", readable=False, help="A folder of playbooks, beside the shipped ones."
    ),
]
Rules = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="FOLDER", readable=False, help="A folder of rules, beside the shipped ones."),
]


class OutputFormat(StrEnum):
    """How an outcome is printed."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="How the outcome is printed.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="In full: every field, condition, measurement and time.")
]
