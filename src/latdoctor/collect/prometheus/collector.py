"""Metrics pages: of running servers, scraped over the window, or saved in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from latdoctor.collect.prometheus import exposition
from latdoctor.collect.prometheus.discover import search
from latdoctor.collect.prometheus.scrape import target
from latdoctor.collect.prometheus.watch import file_name, watch
from latdoctor.collect.source import Clock, Collected, Collector, Request, Sight
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.mapping import read_pages, recognised
from latdoctor.dialects.model import Dialect
from latdoctor.dialects.page import Page, Scrape
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Subject
from latdoctor.text import clean

NAME = "prometheus"
TITLE = "Metrics pages"
_FAMILIES_SHOWN = 5
_LINES_SHOWN = 5
_MAX_SAVED = 64

_PROVIDES = frozenset(signal for dialect in shipped() for signal in dialect.signals)
# What a server that cannot be reached hides. GPU signals have other sources, so they are not its to hide.
_HIDDEN = tuple(sorted(signal for signal in _PROVIDES if not signal.startswith("gpu.")))
# An installed latdoctor has no sources, so it names the page that everybody can read.
_ADD_DIALECT = 'add a dialect, one YAML file: "A server dialect" in docs/contributing.md of the source repository'


def _asked(request: Request) -> bool:
    return bool(request.servers or request.metrics)


def _collect(request: Request, clock: Clock) -> Collected:
    """Reads the saved pages, then scrapes the servers at the start and the end of the window and in between."""
    saved = _saved(request.metrics, clock)
    live = watch(request, clock, NAME, _HIDDEN)
    return Collected((*saved.artifacts, *live.artifacts), (*saved.gaps, *live.gaps))


def _saved(paths: Sequence[Path], clock: Clock) -> Collected:
    """Saved pages of one kind of server are taken for one server's, first to last in the order given."""
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    groups: dict[tuple[str, ...], str] = {}
    for number, path in enumerate(paths, 1):
        shown = clean(path.name, 200)
        if number > _MAX_SAVED:
            gaps.append(_gap(f"{shown} is left out: at most {_MAX_SAVED} saved pages are read", next_step="give fewer"))
            continue
        try:
            raw = _read(path, shown)
        except SourceError as error:
            gaps.append(_gap(f"{shown}: {error.what}", _HIDDEN, error.next_step))
            continue
        own = f"saved-{number}-{file_name(path.stem)}"
        group = groups.setdefault(_kind(raw, shown) or (own,), own)
        artifacts.append(Artifact(f"{NAME}/{own}.prom", NAME, group, shown, clock.now(), raw))
    return Collected(tuple(artifacts), tuple(gaps))


def _read(path: Path, shown: str) -> bytes:
    """Raises SourceError."""
    try:
        is_file = path.is_file()
    except OSError as error:  # its folder may not be entered
        raise SourceError(
            f"cannot be read: {error.strerror}", where=shown, next_step="check path and rights"
        ) from error
    if not is_file:
        raise SourceError("there is no such file", where=shown, next_step="look at the path given with --metrics")
    return Artifact("", NAME, "", shown, 0.0, path).read(exposition.MAX_BYTES)


def _kind(raw: bytes, shown: str) -> tuple[str, ...]:
    """The dialects that the page speaks; none for a page that says nothing to us, of which `parse` tells why."""
    try:
        page = exposition.parse(raw, shown)
    except SourceError:
        return ()
    return tuple(dialect.id for dialect in recognised(shipped(), [page]))


def _parse(artifacts: Sequence[Artifact]) -> Evidence:
    """The evidence of one server's pages. Raises SourceError where none of them is a metrics page."""
    scrapes: list[Scrape] = []
    gaps: list[Gap] = []
    failures: list[SourceError] = []
    for artifact in sorted(artifacts, key=lambda one: (one.taken_at, one.name)):
        try:
            page = exposition.parse(artifact.read(exposition.MAX_BYTES), artifact.source)
        except SourceError as error:
            failures.append(error)
            gaps.append(_gap(f"{artifact.source}: {error.what}", (), error.next_step, Origin(artifact.name)))
            continue
        # When a saved page was taken is not known: a file's times tell when it was copied.
        at = page.timestamp or (artifact.taken_at if _is_live(artifact) else None)
        scrapes.append(Scrape(page, artifact.name, at))
    if not scrapes:
        raise failures[0] if failures else SourceError("no page was brought", where=NAME)
    server = f"server/{_server_name(artifacts[0])}"
    pages = [scrape.page for scrape in scrapes]
    spoken = recognised(shipped(), pages)
    source = artifacts[0].source
    sources = {artifact.name: artifact.source for artifact in artifacts}
    gaps.extend(gap for scrape in scrapes for gap in _bad_lines(scrape, sources[scrape.artifact], spoken))
    if not spoken:
        gaps.append(_unknown(pages[0], source, scrapes[0].artifact))
    evidence = Evidence.merge(read_pages(dialect, scrapes, server, NAME) for dialect in spoken)
    return Evidence.merge([evidence, Evidence(subjects=(Subject(server),), gaps=tuple(gaps))])


def _gap(reason: str, signals: tuple[str, ...] = (), next_step: str = "", origin: Origin | None = None) -> Gap:
    return Gap(NAME, reason, signals, None, next_step, origin)


def _is_live(artifact: Artifact) -> bool:
    return artifact.source.startswith(("http://", "https://"))


def _server_name(artifact: Artifact) -> str:
    if _is_live(artifact):
        try:
            return target(artifact.source).name
        except ValueError as error:
            raise SourceError("its address makes no sense", where=artifact.source) from error
    return clean(Path(artifact.source).stem, 200) or "saved"


def _bad_lines(scrape: Scrape, source: str, spoken: Sequence[Dialect]) -> Iterator[Gap]:
    bad = scrape.page.bad_lines
    if not bad:
        return
    numbers = ", ".join(str(entry.line) for entry in bad[:_LINES_SHOWN])
    more = f" and {len(bad) - _LINES_SHOWN} more" if len(bad) > _LINES_SHOWN else ""
    reason = f"{source}: line {numbers}{more} could not be read; the rest of the page was"
    signals = tuple(sorted(_touched({entry.name for entry in bad if entry.name}, spoken)))
    yield _gap(reason, signals, "fetch the page again", Origin(scrape.artifact, f"line {bad[0].line}"))


def _touched(names: set[str], spoken: Iterable[Dialect]) -> set[str]:
    """The signals that a lost line of one of `names` may hide; of a half line, only half a name may be left."""
    return {
        rule.signal
        for dialect in spoken
        for options in dialect.rules
        for rule in options
        for term in (*rule.terms, *rule.over, *rule.less)
        for option in term.options
        for name in names
        if name.startswith(option.name) or option.name.startswith(name)
    }


def _unknown(page: Page, source: str, artifact: str) -> Gap:
    families = ", ".join(clean(name, 80) for name in page.names[:_FAMILIES_SHOWN])
    reason = f"{source}: an exporter that no dialect knows; it begins with {families}"
    return _gap(reason, (), _ADD_DIALECT, Origin(artifact))


def _preflight() -> Sequence[Sight]:
    """What metrics pages this machine shows."""
    discovery = search()
    sights = [
        Sight(
            f"metrics page {page.url}",
            "yes" if page.dialects else "partly",
            page.title,
            "" if page.dialects else _ADD_DIALECT,
        )
        for page in discovery.found
    ]
    if not any(page.dialects for page in discovery.found):
        detail = f"none of {discovery.asked} local ports shows a page that is known"
        sights.append(Sight("metrics pages of a server", "if given", detail, "--server URL, or --metrics FILE"))
    return sights


COLLECTOR = Collector(
    name=NAME,
    title=TITLE,
    provides=_PROVIDES,
    asked=_asked,
    collect=_collect,
    parse=_parse,
    preflight=_preflight,
    ask="--server URL (or --metrics FILE)",
    cost="watches for the window",
)
