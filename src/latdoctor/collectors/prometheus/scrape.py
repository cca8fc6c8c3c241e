"""HTTP scraping of metrics pages: concurrent, each limited in time and size, without redirects."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from latdoctor.background import run_concurrently
from latdoctor.collectors import outage
from latdoctor.collectors.base import Clock, CollectRequest, CollectResult, code_of_failure
from latdoctor.collectors.prometheus.exposition import MAX_BYTES
from latdoctor.dialects.metrics_page_model import MetricsPage
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Gap, Origin
from latdoctor.gap_code import GapCode
from latdoctor.http.failure import FailureCode, RequestFailure
from latdoctor.http.safe_address import is_loopback, redact_url
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.http.client import HttpClient, HttpResponse

# `identity` prevents decompression of a small response into a huge one.
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A metrics page's address; `display` is without credentials and query, `name` is `host:port`."""

    url: str
    display: str
    name: str
    loopback: bool


@dataclass(frozen=True, slots=True)
class ScrapeResult:
    """The page, or why there is none and the next step. `done` is by the monotonic clock."""

    body: bytes | None
    why: str = ""
    next_step: str = ""
    code: GapCode = GapCode.UNSPECIFIED
    done: float = 0.0
    failure: FailureCode | None = None  # of a request without a response


def parse_target(address: str) -> ScrapeTarget:
    """Parse `localhost:8000`, a base URL or a metrics URL into the page's address. Raises ValueError."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http or https address")  # without the text, which may contain a password
    port = parts.port  # raises ValueError for an invalid port
    path = "/metrics" if parts.path in ("", "/") else parts.path
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    return ScrapeTarget(
        url=urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")),
        display=clean(urlunsplit((parts.scheme, place, path, "", "")), 300),
        name=clean(place if path == "/metrics" else place + path, 200),
        loopback=is_loopback(parts.hostname),
    )


def fetch(
    targets: Sequence[ScrapeTarget], timeout: float, limit: int = MAX_BYTES, at_once: int = 16
) -> tuple[ScrapeResult, ...]:
    """Scrape all targets; results in their order. Each has `timeout` seconds in total and `limit` bytes."""
    from latdoctor.http.client import HttpClient

    # Proxies of the environment are not used for this machine itself.
    with HttpClient() as direct, HttpClient(environment_proxies=True) as outward:
        calls = [
            partial(_fetch_one, direct if target.loopback else outward, target, timeout, limit) for target in targets
        ]
        return run_concurrently(calls, at_once, "latdoctor-scrape")


def _fetch_one(client: HttpClient, target: ScrapeTarget, timeout: float, limit: int) -> ScrapeResult:
    from latdoctor.http.client import HttpRequest

    request = HttpRequest("GET", target.url, _HEADERS, reads=True, limit=limit, decompress=True)
    return replace(_result(client.send(request, timeout)), done=time.monotonic())


def _result(reply: HttpResponse | RequestFailure) -> ScrapeResult:
    if isinstance(reply, RequestFailure):
        return ScrapeResult(None, reply.why, reply.next_step, code_of_failure(reply.code), failure=reply.code)
    if reply.status != 200:
        place = reply.headers.get("location", "")
        moved = f", to {redact_url(place)}" if reply.failure is FailureCode.REDIRECT and place else ""
        return ScrapeResult(None, f"answered with status {reply.status}{moved}", _STATUS, GapCode.REFUSED)
    if reply.flaw:
        next_step = _NEXT_STEPS.get(reply.flaw.code, reply.flaw.next_step)
        return ScrapeResult(None, reply.flaw.why, next_step, code_of_failure(reply.flaw.code))
    # Some exporters omit the last newline. If the transport proves that the body is complete, it is added, so that
    # the page does not count as truncated.
    body = reply.body
    return ScrapeResult(body + b"\n" if reply.framed and body and not body.endswith(b"\n") else body)


_NEXT_STEPS = {FailureCode.TOO_LARGE: "configure the exporter to expose fewer series"}
_STATUS = "use the address of the metrics page (Triton: port 8002, vLLM: the API port, TorchServe: port 8082)"


# Gauges whose sum is the unix time at which the exporter wrote the page.
CLOCKS = (
    ("node_time_seconds",),
    ("process_start_time_seconds", "process_uptime_seconds"),
    ("ref_start_time_seconds", "ref_uptime_seconds"),
    ("redis_start_time_seconds", "redis_uptime_in_seconds"),
)


def page_times(pages: Sequence[MetricsPage]) -> list[float | None]:
    """The unix time of each page: from its samples, else from a clock that every page has, else None.

    File modification times are not used: a copy has others, and rates computed from them would be wrong.
    """
    own = [page.timestamp for page in pages]
    if None in own:
        for clock in CLOCKS:
            timestamps = [_sum(page, clock) for page in pages]
            if None not in timestamps:
                return timestamps
    return own


def _sum(page: MetricsPage, names: Sequence[str]) -> float | None:
    """None if one of the gauges is absent, not finite, or duplicated (several processes)."""
    display = [page.samples.get(name, ()) for name in names]
    total = sum(samples[0].value for samples in display) if all(len(samples) == 1 for samples in display) else math.nan
    return total if math.isfinite(total) else None


MAX_SERVERS = 32
MAX_PAGES = 11
MAX_PAGE_BETWEEN = 1 << 20  # of larger pages, only those of the start and the end are kept
_STOPPED = "-stopped.prom"  # suffix of the last page before an outage, so that a replay recognises it
# How an address fails whose server is down or hangs; other failures may be of the address or the network.
_DOWN = (FailureCode.REFUSED, FailureCode.TIMEOUT)
_GONE = "check that its process is running, and its log (--log FILE)"


@dataclass(slots=True)
class _WatchedServer:
    """One server during the window, with its pages and failures so far."""

    number: int
    target: ScrapeTarget
    collector: str
    named: bool = True  # by the user
    pages: list[Artifact] = field(default_factory=list)
    failures: list[ScrapeResult] = field(default_factory=list)
    small: bool = True
    stopped: bool = False  # its last scrape failed
    tried_at: float = 0.0

    def add(self, answer: ScrapeResult, at: float) -> None:
        self.stopped = answer.body is None
        self.tried_at = at
        if answer.body is None:
            self.failures.append(answer)
            return
        self.small = self.small and len(answer.body) <= MAX_PAGE_BETWEEN
        group = f"{self.number}-{artifact_file_name(self.target.name)}"
        name = f"{self.collector}/{group}-{len(self.pages):02d}.prom"
        self.pages.append(Artifact(name, self.collector, group, self.target.display, at, answer.body))

    def kept(self) -> Sequence[Artifact]:
        if self.named and not self.pages and self.failures and all(one.failure in _DOWN for one in self.failures):
            return [self._outage()]
        if not (self.stopped and self.pages):
            return self.pages
        last = self.pages[-1]
        return [*self.pages[:-1], replace(last, name=last.name.removesuffix(".prom") + _STOPPED)]

    def _outage(self) -> Artifact:
        """What shows that the server did not answer, so that a replay shows it too."""
        group = f"{self.number}-{artifact_file_name(self.target.name)}"
        last = self.failures[-1]
        content = outage.outage_page(last.why, listening=last.failure is not FailureCode.REFUSED)
        name = f"{self.collector}/{group}{outage.SUFFIX}"
        return Artifact(name, self.collector, group, self.target.display, self.tried_at, content)


def scrape_over_window(
    request: CollectRequest,
    clock: Clock,
    collector: str,
    hidden: tuple[str, ...],
    one_page_is_enough: Callable[[Artifact], bool] = lambda page: False,
) -> CollectResult:
    """Return the pages of `request.pages` as artifacts of `collector`, one group per server.

    A server without any page is a gap that hides the signals `hidden`. One that fails at the start is tried again only
    at the end; if all fail at the start, or one page of each is enough, the collection ends at once.
    """
    watched, gaps = _targets(request.pages, collector, hidden)
    found = {parse_target(url).url for url in request.found_servers}
    for one in watched:
        one.named = one.target.url not in found
    ticks = max(1, min(MAX_PAGES - 1, int(request.window))) if request.window > 0 else 0
    start = clock.now()
    for tick in range(ticks + 1):
        at_edge = tick in (0, ticks)
        step = request.window / max(1, ticks)
        due = start + step * tick
        if not at_edge and clock.now() > due + step:
            continue  # a hanging server has used up this interval
        pending = [one for one in watched if at_edge or (one.pages and one.small and not one.failures)]
        if tick and not any(one.pages for one in watched):
            break
        if tick and due > clock.now():
            clock.sleep(due - clock.now())
        _scrape(pending, request.timeout, clock)
        if not tick and watched and all(one.pages and one_page_is_enough(one.pages[0]) for one in watched):
            break
    # A server that stopped answering within the window may be the incident itself and is reported first.
    for one in sorted(watched, key=lambda one: not (one.stopped and one.pages)):
        gaps.extend(_failures(one, collector, hidden, start))
    return CollectResult(tuple(page for one in watched for page in one.kept()), tuple(gaps))


def is_last_before_outage(artifact: Artifact) -> bool:
    """Whether this is the last page of a server that stopped answering within the window."""
    return artifact.name.endswith(_STOPPED)


def kept_open(artifact: Artifact) -> Artifact:
    """The last page of a server that stopped answering, as that of one that was read to the end of the window."""
    return replace(artifact, name=artifact.name.removesuffix(_STOPPED) + ".prom")


def _targets(servers: Sequence[str], collector: str, hidden: tuple[str, ...]) -> tuple[list[_WatchedServer], list[Gap]]:
    watched: list[_WatchedServer] = []
    gaps: list[Gap] = []
    for address in dict.fromkeys(servers):
        try:
            found = parse_target(address)
        except ValueError:  # its text may contain a password
            reason = f"{redact_url(address)} is not the address of a server"
            gaps.append(Gap(collector, reason, hidden, None, "use http://HOST:PORT", code=GapCode.NOT_MATCHED))
            continue
        if len(watched) == MAX_SERVERS:
            reason = f"{found.display} is left out: at most {MAX_SERVERS} servers are scraped at once"
            subject = f"server/{found.name}"
            gaps.append(Gap(collector, reason, hidden, subject, "pass fewer --server", code=GapCode.TOO_LARGE))
        elif all(one.target.url != found.url for one in watched):
            watched.append(_WatchedServer(len(watched) + 1, found, collector))
    return watched, gaps


def _scrape(due: Sequence[_WatchedServer], timeout: float, clock: Clock) -> None:
    if not due:
        return
    before, began = clock.now(), time.monotonic()
    answers = fetch([one.target for one in due], timeout)
    after = clock.now()
    for one, answer in zip(due, answers, strict=True):
        # The time of this response, although another server may have taken longer.
        at = min(before + (answer.done - began), after)
        one.add(answer, at)


def _failures(one: _WatchedServer, collector: str, hidden: tuple[str, ...], start: float) -> Iterable[Gap]:
    if not one.failures:
        return
    last = one.failures[-1]
    if not one.pages:
        reason, subject = f"{one.target.display} {last.why}", f"server/{one.target.name}"
        yield Gap(collector, reason, hidden, subject, last.next_step, code=last.code)
        return
    if one.stopped:
        since = f"its last page is from second {one.pages[-1].taken_at - start:.0f} of the window"
        reason = f"{one.target.display} stopped answering within the window: {since}, then it {last.why}"
        yield Gap(collector, reason, hidden, None, _GONE, Origin(one.kept()[-1].name), GapCode.STOPPED)
        return
    tried = len(one.pages) + len(one.failures)
    reason = f"{one.target.display}: {len(one.failures)} of {tried} scrapes failed: it {last.why}"
    yield Gap(collector, reason, (), None, last.next_step, code=last.code)


def artifact_file_name(text: str) -> str:
    """Return `text` as part of an artifact's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+|\.{2,}", "_", text)[:80]
