"""Collector of metrics pages: scraped from running servers over the window, or read from files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from latdoctor.collectors import outage, piped_input
from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    SourceAvailability,
    SourceReader,
)
from latdoctor.collectors.prometheus import NAME, exposition, provided_signals
from latdoctor.collectors.prometheus.scrape import (
    artifact_file_name,
    is_last_before_outage,
    page_times,
    parse_target,
    scrape_over_window,
)
from latdoctor.dialects.current_level import of_now
from latdoctor.dialects.loader import shipped, shipped_signals
from latdoctor.dialects.metrics_page_model import MetricsPage, ScrapedPage
from latdoctor.dialects.model import Dialect, join_notes
from latdoctor.dialects.to_evidence import read_pages, recognise_dialects
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.evidence.model import Evidence, Gap, Origin, Subject, Window
from latdoctor.gap_code import GapCode, code_of_os_error
from latdoctor.sanitize import clean, counted

if TYPE_CHECKING:
    from latdoctor.collectors.prometheus.discovery import DiscoveredPage
    from latdoctor.collectors.promql.recognise_monitoring_server import MonitoringKind

_FAMILIES_SHOWN = 5
_LINES_SHOWN = 5
_MAX_SAVED = 64
_NO_P99 = "get its P99 from its clients or from a gateway in front of it"
_HALF = "its last number may be truncated"
_STOPPED = "until the server stopped answering"
_AGAIN = "fetch the page again"
_MONITORING = re.compile(rb"^(?:prometheus|alertmanager)_build_info[ {]", re.MULTILINE)

# An installed latdoctor comes without its source tree, so this names the online page.
_ADD_DIALECT = 'add a dialect, one YAML file: "A server dialect" in docs/contributing.md of the source repository'


@cache
def _hidden() -> tuple[str, ...]:
    """The signals that an unreachable server hides. Hardware signals have other sources."""
    return tuple(sorted(signal for signal in shipped_signals() if not signal.startswith(("gpu.", "host."))))


def _collect(request: CollectRequest, clock: Clock) -> CollectResult:
    """Read the saved pages, then scrape the servers at the start, during, and at the end of the window."""
    saved = _saved(request.metrics, request.timeout, clock)
    live = scrape_over_window(request, clock, NAME, _hidden(), _is_monitoring)
    return CollectResult((*saved.artifacts, *live.artifacts), (*saved.gaps, *live.gaps))


def _is_monitoring(page: Artifact) -> bool:
    """Whether it is the page of a Prometheus or an Alertmanager itself, which no window makes more useful."""
    from latdoctor.collectors.promql.recognise_monitoring_server import kind_of_page

    raw = page.read(exposition.MAX_BYTES)
    if not _MONITORING.search(raw):
        return False
    try:
        parsed = exposition.parse(raw, page.source)
    except SourceError:
        return False
    return kind_of_page(parsed.names) is not None and not recognise_dialects(shipped(), [parsed])


def _saved(paths: Sequence[Path], timeout: float, clock: Clock) -> CollectResult:
    """Read saved pages; pages of one kind of server are taken for one server's, first to last in the given order."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    groups: dict[tuple[str, ...], str] = {}
    for number, path in enumerate(paths, 1):
        shown = clean(piped_input.shown_name(path) if piped_input.is_stream(path) else path.name, 200)
        if number > _MAX_SAVED:
            gaps.append(
                _gap(
                    f"{shown} is left out: at most {_MAX_SAVED} saved pages are read",
                    GapCode.TOO_LARGE,
                    next_step="pass fewer",
                )
            )
            continue
        try:
            raw = _read(path, shown, timeout)
        except SourceError as error:
            gaps.append(_gap(f"{shown}: {error.what}", error.code, _hidden(), error.next_step))
            continue
        own = f"saved-{number}-{artifact_file_name(Path(shown).stem)}"
        group = groups.setdefault(_kind(raw, shown) or (own,), own)
        artifacts.append(Artifact(f"{NAME}/{own}.prom", NAME, group, shown, clock.now(), raw))
    return CollectResult(tuple(artifacts), tuple(gaps))


def _read(path: Path, shown: str, timeout: float) -> bytes:
    """Raises SourceError."""
    if piped_input.is_stream(path):
        read = piped_input.read_stream(path, timeout, exposition.MAX_BYTES, exposition.MAX_BYTES)
        if read.unfinished:  # any series may be missing, so no sum is reliable
            why = f"incomplete: {read.unfinished}"
            raise SourceError(why, where=shown, code=GapCode.TIMEOUT, next_step="save the page to a file and pass that")
        return read.content
    try:
        is_file = path.is_file()
        what = "is a folder" if path.is_dir() else "there is no such file"
    except OSError as error:  # no permission to enter its folder
        raise SourceError(
            f"cannot be read: {error.strerror}",
            where=shown,
            next_step="check path and permissions",
            code=code_of_os_error(error),
        ) from error
    if not is_file:
        raise SourceError(what, where=shown, next_step="check the path of --metrics", code=GapCode.ABSENT)
    return Artifact("", NAME, "", shown, 0.0, path).read(exposition.MAX_BYTES)


def _kind(raw: bytes, shown: str) -> tuple[str, ...]:
    """The ids of the page's dialects; empty for an invalid page, which `parse` reports."""
    try:
        page = exposition.parse(raw, shown)
    except SourceError:
        return ()
    return tuple(dialect.id for dialect in recognise_dialects(shipped(), [page]))


def _parse(artifacts: Sequence[Artifact]) -> Evidence:
    """Return the evidence of one server's pages. Raises SourceError if none of them is a metrics page."""
    if outage.is_outage(artifacts[0]):
        return outage.read_outage(artifacts[0], _server_name(artifacts[0]))
    pages: list[tuple[Artifact, MetricsPage]] = []
    gaps: list[Gap] = []
    failures: list[SourceError] = []
    taken = sorted(artifacts, key=lambda one: (one.taken_at, one.name))
    for artifact in taken:
        try:
            pages.append((artifact, exposition.parse(artifact.read(exposition.MAX_BYTES), artifact.source)))
        except SourceError as error:
            failures.append(error)
            reason = f"{artifact.source}: {error.what}"
            gaps.append(_gap(reason, error.code, (), error.next_step, Origin(artifact.name)))
    if not pages:
        raise failures[0] if failures else SourceError("no page was read", where=NAME)
    live = _is_live(taken[0])
    stopped = live and (is_last_before_outage(pages[-1][0]) or pages[-1][0] is not taken[-1])
    server = f"server/{_server_name(artifacts[0])}"
    dialects = recognise_dialects(shipped(), [page for _, page in pages])
    unended = {page.unended.name for _, page in pages if page.unended and not page.cut}
    doubtful = _touched(unended - {""}, dialects)
    for artifact, page in pages:
        gaps.extend(_bad_lines(artifact, page, dialects))
    gaps.extend(_unended(pages, doubtful))
    gaps.extend(_not_shown(dialects, *pages[-1]))
    scrapes = _scrapes(_whole(pages))
    # Saved pages may lie far apart: the last one shows how it is now. Live ones are a window of seconds.
    judged = dialects if live else tuple(of_now(dialect) for dialect in dialects)
    evidence = Evidence.merge(read_pages(dialect, scrapes, server, NAME) for dialect in judged)
    noted = _noted(evidence, _STOPPED if stopped else "", doubtful)
    state = _state(_server_name(artifacts[0]), taken, pages[-1][0], stopped=stopped) if live else Evidence()
    return Evidence.merge([noted, state, Evidence(subjects=(Subject(server),), gaps=tuple(gaps))])


def _state(name: str, taken: Sequence[Artifact], last: Artifact, *, stopped: bool) -> Evidence:
    """Whether the server's last response was a metrics page, and not a proxy's error or nothing."""
    origin, window = Origin(taken[-1].name), Window(taken[0].taken_at, taken[-1].taken_at)
    if not stopped:
        return outage.answers(name, origin, window)
    pace = (last.taken_at - taken[0].taken_at) / max(1, len(taken) - 1)
    why = "stopped answering during the observation"
    return outage.outage_evidence(outage.Outage(name, why, last.taken_at, pace), origin, window)


def _whole(pages: Sequence[tuple[Artifact, MetricsPage]]) -> Sequence[tuple[Artifact, MetricsPage]]:
    """Return `pages` without a truncated last one: what it lacks would be taken for gone."""
    return pages[:-1] if len(pages) > 1 and pages[-1][1].cut else pages


def _scrapes(pages: Sequence[tuple[Artifact, MetricsPage]]) -> list[ScrapedPage]:
    if _is_live(pages[0][0]):
        return [ScrapedPage(page, artifact.name, page.timestamp or artifact.taken_at) for artifact, page in pages]
    times = page_times([page for _, page in pages])
    return [ScrapedPage(page, artifact.name, at) for (artifact, page), at in zip(pages, times, strict=True)]


def _noted(evidence: Evidence, always: str, doubtful: Set[str]) -> Evidence:
    """Add caveats to the evidence: the server stopped, or the last number may be truncated."""
    if not (always or doubtful):
        return evidence

    def note(signal: str, note_text: str) -> str:
        return join_notes(note_text, always, _HALF if signal in doubtful else "")

    return structs.replace(
        evidence,
        readings=tuple(structs.replace(one, note=note(one.signal, one.note)) for one in evidence.readings),
        distributions=tuple(structs.replace(one, note=note(one.signal, one.note)) for one in evidence.distributions),
    )


def _gap(
    reason: str, code: GapCode, signals: tuple[str, ...] = (), next_step: str = "", origin: Origin | None = None
) -> Gap:
    return Gap(NAME, reason, signals, None, next_step, origin, code)


def _is_live(artifact: Artifact) -> bool:
    return artifact.source.startswith(("http://", "https://"))


def _server_name(artifact: Artifact) -> str:
    if _is_live(artifact):
        try:
            return parse_target(artifact.source).name
        except ValueError as error:
            raise SourceError("its address is invalid", where=artifact.source) from error
    return clean(Path(artifact.source).stem, 200) or "saved"


def _bad_lines(artifact: Artifact, page: MetricsPage, dialects: Sequence[Dialect]) -> Iterator[Gap]:
    bad = page.bad_lines
    if not bad:
        return
    numbers = ", ".join(str(entry.line) for entry in bad[:_LINES_SHOWN])
    more = f" and {len(bad) - _LINES_SHOWN} more" if len(bad) > _LINES_SHOWN else ""
    rest = "the page is truncated there" if page.cut else "the rest of the page was read"
    reason = f"{artifact.source}: line {numbers}{more} could not be read; {rest}"
    signals = tuple(sorted(_touched({entry.name for entry in bad if entry.name}, dialects)))
    yield _gap(reason, GapCode.UNREADABLE, signals, _AGAIN, Origin(artifact.name, f"line {bad[0].line}"))


def _unended(pages: Sequence[tuple[Artifact, MetricsPage]], doubtful: Set[str]) -> Iterator[Gap]:
    """One gap for all pages without a final newline: an editor may have removed it, or the page was truncated."""
    found = [(artifact, page.unended) for artifact, page in pages if page.unended and not page.cut]
    if found and doubtful:
        sources = ", ".join(dict.fromkeys(artifact.source for artifact, _ in found))
        artifact, last = found[-1]
        reason = f"{sources}: no newline at the end, so it may be truncated: {_HALF}"
        yield _gap(
            reason, GapCode.UNREADABLE, tuple(sorted(doubtful)), _AGAIN, Origin(artifact.name, f"line {last.line}")
        )


def _touched(names: set[str], dialects: Iterable[Dialect]) -> set[str]:
    """The signals that may depend on a lost line with one of `names`; of a truncated name only a part may remain."""
    return {
        rule.signal
        for dialect in dialects
        for options in dialect.rules
        for rule in options
        for term in (*rule.terms, *rule.over, *rule.less, *rule.held)
        for option in term.options
        for name in names
        if name.startswith(option.name) or option.name.startswith(name)
    }


def _not_shown(dialects: Sequence[Dialect], artifact: Artifact, page: MetricsPage) -> Iterator[Gap]:
    """Gaps for what this page can never show, so that the user is not asked to pass it again.

    They have no subject, because the page of another server may show it.
    """
    origin = Origin(artifact.name)
    if not dialects:
        yield _of_no_dialect(artifact, page)
        return
    own = _with_derived(signal for dialect in dialects for signal in dialect.signals)
    if "latency.mean" in own and "latency.p99" not in own:
        title = " and ".join(dialect.title for dialect in dialects)
        hidden = tuple(sorted(_with_derived(["latency"]) - own))
        yield _gap(f"{title} reports only the mean of its latency", GapCode.UNSUPPORTED, hidden, _NO_P99, origin)


def _of_no_dialect(artifact: Artifact, page: MetricsPage) -> Gap:
    from latdoctor.collectors.promql.recognise_monitoring_server import TITLES, kind_of_page

    origin = Origin(artifact.name)
    if kind := kind_of_page(page.names):
        reason = f"{artifact.source}: the metrics of a {TITLES[kind]} itself, not those of an inference service"
        hidden = tuple(sorted(_with_derived(provided_signals())))
        return _gap(reason, GapCode.NOT_MATCHED, hidden, _instead(kind, artifact), origin)
    families = ", ".join(clean(name, 80) for name in page.names[:_FAMILIES_SHOWN])
    reason = f"{artifact.source}: an exporter without a dialect; its first families are {families}"
    return _gap(reason, GapCode.UNSUPPORTED, tuple(sorted(_with_derived(_hidden()))), _ADD_DIALECT, origin)


def _instead(kind: MonitoringKind, artifact: Artifact) -> str:
    """How to diagnose what a monitoring server watches."""
    from latdoctor.collectors.promql.recognise_monitoring_server import MonitoringKind, api_root, command_for

    if kind == MonitoringKind.ALERTMANAGER:
        return "name the inference service (--server URL); latdoctor listen receives the alerts"
    return command_for(api_root(artifact.source) if _is_live(artifact) else "URL")


def _with_derived(signals: Iterable[str]) -> frozenset[str]:
    """Return `signals` and those derived from the distributions among them (`latency` gives `latency.p99`)."""
    names = set(signals)
    spread = tuple(f"{name}." for name in names if catalogue()[name].kind == SignalKind.DISTRIBUTION)
    return frozenset(names | {name for name in catalogue() if name.startswith(spread)})


def _preflight() -> Sequence[SourceAvailability]:
    """The metrics pages on this machine, and the monitoring servers among them with what they scrape."""
    from latdoctor.collectors.prometheus.discovery import discover_pages

    discovery = discover_pages()
    rows = [_availability(page) for page in discovery.found]
    if not any(page.dialects for page in discovery.found):
        detail = f"no known metrics page on {counted(discovery.ports_probed, 'local port')}"
        how = "--server URL, or --metrics FILE"
        rows.append(SourceAvailability("metrics pages of a server", Availability.IF_GIVEN, detail, how, "--server URL"))
    return rows


def _availability(page: DiscoveredPage) -> SourceAvailability:
    from latdoctor.collectors.promql.recognise_monitoring_server import MonitoringServer, api_root, identify, watched

    if page.monitoring:
        server = identify(page.url) or MonitoringServer(page.monitoring, api_root(page.url))
        what = f"{server.title} {server.url}"
        command = server.command if server.services else ""
        step = "" if command else server.command
        return SourceAvailability(what, Availability.YES, watched(server), step, command=command)
    what = f"metrics page {page.url}"
    if page.dialects:
        command = f"latdoctor diagnose --server {page.url} --slo LIMIT"
        return SourceAvailability(what, Availability.YES, page.title, command=command)
    return SourceAvailability(what, Availability.PARTLY, f"{page.title} exporter", _ADD_DIALECT)


READER = SourceReader(_collect, _parse, _preflight)
