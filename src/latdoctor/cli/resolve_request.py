"""From command-line options and configuration to a CollectRequest, a Context and a Baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from latdoctor.cli.configured_target import note_unread_servers, settings_of
from latdoctor.cli.console import notice
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.urls import server, servers_name
from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.outage import outage_artifacts
from latdoctor.collectors.piped_input import display, is_stream, shown_name
from latdoctor.errors import OperationError, UsageError
from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.baseline import load as load_baseline
from latdoctor.evidence.bundle import NO_GPU, Bundle, Context
from latdoctor.evidence.model import Event, Evidence, Gap, Reading, Series
from latdoctor.gap_code import GapCode
from latdoctor.http.safe_address import mask_credentials
from latdoctor.sanitize import clean
from latdoctor.units import parse_duration, parse_share, parse_span

if TYPE_CHECKING:
    from latdoctor.cli.config_file import TargetSettings
    from latdoctor.collectors.prometheus.discovery import DiscoveredPage
    from latdoctor.collectors.prometheus.local_services import LocalService
    from latdoctor.evidence.redaction.redactor import Redactor

    _Chosen = tuple[CollectRequest, str, tuple[LocalService, ...]]  # with the notice and the services of this machine

_SHOWN = 20
_SERVICES = 8  # of a Prometheus, in an error message
# The collectors that read the files of an option: an access log is a log too.
_SHARED = {"logs": ("logs", "access_log")}


@dataclass(frozen=True, slots=True)
class Source:
    """One source that the user named. `place`: the name in its artifacts; empty: every artifact of the collector."""

    collector: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class CollectedEvidence:
    """A bundle, and the sources that the user named for it (none where this machine was observed by default)."""

    bundle: Bundle
    requested: tuple[Source, ...] = ()


def named_sources(request: CollectRequest, *, nvml: bool) -> tuple[Source, ...]:
    """The sources that `request` names; `nvml`: the GPU driver was requested, not only read by default."""
    return (
        *(Source("prometheus", server(url).display) for url in request.servers),
        *(Source("prometheus", clean(_called(path, path.name), 200)) for path in request.metrics),
        *([Source("promql", request.prometheus.access.url)] if request.prometheus else []),
        *(Source("kubernetes", name) for name in (request.kubernetes.names if request.kubernetes else ())),
        *(Source("torch_trace", clean(display(path))) for path in request.traces),
        *(Source("nsight", clean(display(path))) for path in request.nsight),
        *(Source("tensorrt", clean(display(path))) for path in request.tensorrt),
        *(Source("torch_memory", clean(display(path))) for path in request.torch_memory),
        *(Source("logs", clean(display(path))) for path in request.logs),
        *(Source("documents", clean(display(path))) for path in request.documents),
        *(Source("changes", clean(display(path))) for path in request.changes),
        *([Source("host")] if request.pid is not None else []),
        *([Source("nvml"), Source("host")] if nvml else []),  # `--nvml` observes this machine
    )


def redact_collected(collected: CollectedEvidence, redactor: Redactor) -> CollectedEvidence:
    """The evidence with a redacted bundle; the requested sources get the names of the redacted artifacts."""
    from latdoctor.evidence.redaction import bundle as redacting

    requested = tuple(Source(one.collector, redactor.text(one.place)) for one in collected.requested)
    return CollectedEvidence(redacting.redacted(collected.bundle, redactor), requested)


def _called(path: Path, name: str) -> str:
    """The name that a collector gives this file (`name`) or pipe."""
    return shown_name(path) if is_stream(path) else name


def unread_sources(collected: CollectedEvidence, evidence: Evidence) -> tuple[Source, ...]:
    """The named sources without an artifact, or with unreadable artifacts only."""
    if not collected.requested:
        return ()
    refused = _refused_artifacts(evidence) | outage_artifacts(collected.bundle)
    return tuple(source for source in collected.requested if not _was_read(source, collected.bundle, refused))


def check_sources_read(
    collected: CollectedEvidence, evidence: Evidence, *, every: bool = False, outage: bool = False, consequence: str
) -> None:
    """Raises OperationError where none of the named sources could be read, or (`every`) one could not.

    The reasons go to stderr first; `consequence`: what was not done because of it; `outage`: an outage is a result.
    """
    failed = unread_sources(collected, evidence)
    gaps = [gap for source in failed for gap in _gaps_of(source, collected.bundle, evidence)]
    judged = (outage and outage_artifacts(collected.bundle)) or (len(failed) < len(collected.requested) and not every)
    if not failed or judged:
        print_gaps(gaps)  # the others are judged, but the answer alone would not show what is missing
        return
    _check_not_monitoring(source for source in failed if _answered(source, collected.bundle, evidence))
    print_gaps(gaps)
    next_step = next((gap.next_step for gap in gaps if gap.next_step), "latdoctor preflight")
    if len(failed) == len(collected.requested):
        raise OperationError(f"no requested source could be read, {consequence}", next_step=next_step)
    raise OperationError(
        f"{len(failed)} of {len(collected.requested)} requested sources could not be read, {consequence}",
        next_step=f"{next_step}; or leave that source out",
    )


def _answered(source: Source, bundle: Bundle, evidence: Evidence) -> bool:
    """Whether a server sent a response at all: one that did not is not asked again."""
    silent = (GapCode.TIMEOUT, GapCode.UNREACHABLE, GapCode.CERTIFICATE)
    return not all(gap.code in silent for gap in _gaps_of(source, bundle, evidence))


def _check_not_monitoring(failed: Iterable[Source]) -> None:
    """Raises OperationError where the address of a server is that of a Prometheus or an Alertmanager."""
    from latdoctor.collectors.promql.recognise_monitoring_server import MonitoringKind, identify

    for source in failed:
        if source.collector != "prometheus" or not source.place.startswith(("http://", "https://")):
            continue
        found = identify(source.place)
        if found is None:
            continue
        what = f"{found.url} is {found.title_with_article}, not an inference service"
        if found.kind == MonitoringKind.ALERTMANAGER:
            step = "name the service: --server URL; latdoctor listen receives the alerts of an Alertmanager"
            raise OperationError(what, next_step=step)
        services = [f"it scrapes {one.shown}" for one in found.services[:_SERVICES]]
        if len(found.services) > _SERVICES:
            services.append(f"and {len(found.services) - _SERVICES} more inference services")
        listed = services or [found.problem or "it scrapes no inference service of a known kind"]
        raise OperationError(what, next_step=found.command, listed=listed)


def unread_reason(collected: CollectedEvidence) -> str:
    """The first reason why no named source could be read."""
    return collected.bundle.gaps[0].reason if collected.bundle.gaps else "the content is not readable"


def print_gaps(gaps: Iterable[Gap]) -> None:
    """Print each unreadable source on stderr, once."""
    _notices("could not be read", (f"{gap.source}: {gap.reason}" for gap in gaps))


def print_left_out(gaps: Iterable[Gap]) -> None:
    """Print the signals that a baseline lacks on stderr, with the reasons."""
    _notices("left out", (f"{', '.join(gap.signals)}: {gap.reason}" for gap in gaps))


def _notices(heading: str, lines: Iterable[str]) -> None:
    unique = list(dict.fromkeys(lines))
    for line in unique[:_SHOWN]:
        notice(mask_credentials(clean(f"{heading}: {line}")))
    if len(unique) > _SHOWN:
        notice(f"{heading}: {len(unique) - _SHOWN} more")


def _was_read(source: Source, bundle: Bundle, refused: frozenset[str]) -> bool:
    """Whether it has an artifact that is not among the `refused`."""
    readers = _SHARED.get(source.collector, (source.collector,))
    groups: dict[tuple[str, str], set[str]] = {}
    for artifact in bundle.artifacts:
        if artifact.collector in readers and _is_of(source, artifact.source):
            groups.setdefault((artifact.collector, artifact.group), set()).add(artifact.name)
    return any(not names & refused for names in groups.values())


def _refused_artifacts(evidence: Evidence) -> frozenset[str]:
    """Artifacts that yielded nothing: all of their source's signals are missing, or they are damaged throughout.

    A gap with a subject is no refusal: the artifact was read, but lacks that subject (a damaged rank among others, a
    log that ends before the requested time).
    """
    provided = {collector.name: collector.assured for collector in COLLECTORS}
    seen: tuple[Reading | Series | Event, ...] = (*evidence.readings, *evidence.series, *evidence.events)
    shown = {one.origin.artifact for one in seen if one.origin}
    whole = [(gap, gap.origin.artifact) for gap in evidence.gaps if gap.origin and gap.subject is None]
    return frozenset(
        name
        for gap, name in whole
        if provided.get(gap.source, {""}) <= set(gap.signals) or (gap.code == GapCode.UNREADABLE and name not in shown)
    )


def _is_of(source: Source, place: str) -> bool:
    return not source.place or place == source.place or place.startswith(f"{source.place}/")


def _gaps_of(source: Source, bundle: Bundle, evidence: Evidence) -> Sequence[Gap]:
    readers = _SHARED.get(source.collector, (source.collector,))
    own = [gap for gap in evidence.gaps if gap.source in readers]
    names = {artifact.name for artifact in bundle.artifacts if _is_of(source, artifact.source)}
    # A source without artifacts failed while it was collected: such a gap has no origin.
    causes = [gap for gap in own if (gap.origin.artifact in names if gap.origin else not names)]
    fallback = Gap(source.collector, f"{source.place or source.collector} yielded nothing", code=GapCode.EMPTY)
    return causes or own or [fallback]


WINDOW = "10s"
LONGEST_WINDOW = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """What to collect and the context of the target. `notice`: which sources were chosen where none was named."""

    request: CollectRequest
    context: Context
    baseline: Baseline | None
    named: tuple[Source, ...] = ()
    notice: str = ""
    services: tuple[LocalService, ...] = ()  # of this machine, where no source was named
    baseline_file: Path | None = None

    @property
    def guessed(self) -> bool:
        """Whether no source was named: the servers were discovered on this machine."""
        return bool(self.notice)


class BaselineNeed(Enum):
    """How a command uses the configured baseline."""

    REQUIRED = "required"
    IF_PRESENT = "used if the file exists"
    UNUSED = "not used"


def resolve_request(sources: SourceOptions, need: BaselineNeed = BaselineNeed.REQUIRED) -> ResolvedRequest:
    """The sources of the options, else the configured target, else this machine. Raises UsageError, BundleError."""
    settings = settings_of(sources)
    note_unread_servers(sources)
    window = value(sources.window or WINDOW, parse_duration, "--window", WINDOW)
    if not 0 < window <= LONGEST_WINDOW:
        raise UsageError(
            f"must be greater than 0 and at most 1h (got {sources.window!r})",
            where="--window",
            next_step=f"write it such as --window {WINDOW}",
        )
    context = Context(
        target=clean(_name(sources, settings), 200),
        slo_p99=value(sources.slo, parse_span, "--slo", "500ms") if sources.slo else settings.slo_p99,
        slo_error_ratio=(
            value(sources.slo_errors, parse_share, "--slo-errors", "1%")
            if sources.slo_errors
            else settings.slo_error_ratio
        ),
        gpu=settings.gpu,
    )
    baseline_file = _baseline_file(sources, settings, need)
    baseline = load_baseline(baseline_file) if baseline_file else None
    request, notice, services = _request(sources, settings, window)
    live = request.servers or request.nvml or request.host or request.prometheus or request.kubernetes
    if sources.window and not (live or request.past):
        step = "leave it out; --since and --until select a part of a log"
        raise UsageError("needs a live source; files are read as a whole", where="--window", next_step=step)
    named = () if notice else named_sources(request, nvml=bool(sources.nvml))
    return ResolvedRequest(request, context, baseline, named, notice, services, baseline_file)


def check_no_sources_beside(bundle: Path | None, sources: SourceOptions) -> None:
    """Raises UsageError for a bundle together with sources: it has sources of its own."""
    if bundle is not None and sources.any_source:
        raise UsageError("a bundle and sources are exclusive", next_step="give one of them")


def check_no_collect_options(sources: SourceOptions) -> None:
    """Raises UsageError for a saved bundle together with options for collecting."""
    how = {"--target": sources.target, "--window": sources.window, "--select": sources.select}
    how |= {"--since": sources.since, "--until": sources.until, "--log-pattern": sources.log_pattern}
    for option in (name for name, value in how.items() if value):
        raise UsageError(f"{option} is for collecting, and a bundle is collected already", next_step="leave it out")


def _baseline_file(sources: SourceOptions, settings: TargetSettings, need: BaselineNeed) -> Path | None:
    path = settings.baseline
    absent = path is not None and need is BaselineNeed.IF_PRESENT and not path.exists()
    return sources.baseline or (None if need is BaselineNeed.UNUSED or absent else path)


def with_slo_options(context: Context, sources: SourceOptions) -> Context:
    """The context of a saved bundle, with the objectives of the command line."""
    if sources.slo:
        context = replace(context, slo_p99=value(sources.slo, parse_span, "--slo", "500ms"))
    if sources.slo_errors:
        context = replace(context, slo_error_ratio=value(sources.slo_errors, parse_share, "--slo-errors", "1%"))
    return context


def _request(
    sources: SourceOptions, settings: TargetSettings, window: float
) -> tuple[CollectRequest, str, tuple[LocalService, ...]]:
    servers = sources.server or settings.server
    for url in servers:
        server(url, "--server" if sources.server else f"target {settings.name}")
    from latdoctor.cli import kube_workloads, time_args

    past = time_args.past_of(sources, settings)
    request = CollectRequest(
        prometheus=time_args.server_of(sources, settings, past),
        kubernetes=kube_workloads.workloads_of(sources, settings),
        past=past if sources.since or sources.until else None,
        servers=servers,
        metrics=sources.metrics or settings.metrics,
        traces=sources.trace or settings.trace,
        nsight=sources.nsys or settings.nsys,
        tensorrt=sources.tensorrt or settings.tensorrt,
        torch_memory=sources.torch_memory or settings.torch_memory,
        logs=sources.log or settings.log,
        documents=sources.document,
        log_pattern=_pattern(sources, settings),
        changes=sources.changes or settings.changes,
        pid=sources.pid,
        window=window,
    )
    if not (sources.any_source or settings.name):
        return _this_machine(request, sources)
    here = any(server(url).loopback for url in servers) or sources.pid is not None
    nvml = sources.nvml if sources.nvml is not None else settings.nvml
    read = here and settings.gpu != NO_GPU if nvml is None else nvml
    return replace(request, nvml=read, host=here or bool(nvml)), "", ()


def _pattern(sources: SourceOptions, settings: TargetSettings) -> str:
    """Raises UsageError for an invalid pattern, or one without a log."""
    text = sources.log_pattern or settings.log_pattern
    if sources.log_pattern and not (sources.log or settings.log):
        raise UsageError(
            "--log-pattern describes the lines of an access log, and no log is named",
            next_step="name the log: --log FILE",
        )
    if text:
        from latdoctor.collectors.access_log.fields import compiled

        compiled(text)
    return text


def _this_machine(
    request: CollectRequest, sources: SourceOptions
) -> tuple[CollectRequest, str, tuple[LocalService, ...]]:
    """The default without sources: this machine's GPUs, its kernel, and the metrics pages on its ports."""
    from latdoctor.collectors.prometheus.local_services import services_of
    from latdoctor.collectors.promql.recognise_monitoring_server import MonitoringKind, api_root, command_for

    pages = local_pages()
    servers = tuple(page.url for page in pages if page.dialects)
    shown = ", ".join(servers) or "no metrics page on a local port"
    for page in pages:
        if page.monitoring == MonitoringKind.PROMETHEUS:
            shown += f"; a Prometheus server is here: {command_for(api_root(page.url))}"
    chosen = replace(request, servers=servers, nvml=sources.nvml is not False, host=True)
    return chosen, f"no source named: reading this machine ({shown})", services_of(pages)


def local_pages() -> tuple[DiscoveredPage, ...]:
    """The metrics pages on this machine's ports."""
    from latdoctor.collectors.prometheus.discovery import discover

    return discover()


def _name(sources: SourceOptions, settings: TargetSettings) -> str:
    if sources.target or settings.name:
        return mask_credentials(sources.target or settings.name)
    if sources.server:
        return servers_name(sources.server)
    if sources.kube:
        return ", ".join(dict.fromkeys(sources.kube))
    if sources.prometheus:
        from latdoctor.cli.time_args import name_of

        return name_of(sources)
    return sources.files_name if sources.files else "this machine"


def value(text: str, convert: Callable[[str], float], where: str, example: str) -> float:
    try:
        return convert(text)
    except ValueError as error:
        raise UsageError(str(error), where=where, next_step=f"write it such as {where} {example}") from error
