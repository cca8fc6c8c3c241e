"""Collector of configurations: the metrics page says what the server is, and its API how it is configured.

An artifact is one raw answer; its source names the request and the metrics page it belongs to, so that a replay gives
the values to the same subjects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec

from latdoctor.background import run_concurrently
from latdoctor.collectors.base import Clock, CollectRequest, CollectResult, SourceReader, code_of_failure
from latdoctor.collectors.prometheus import exposition
from latdoctor.collectors.prometheus.scrape import ScrapeTarget, artifact_file_name, fetch, parse_target
from latdoctor.collectors.server_config import NAME
from latdoctor.collectors.server_config.configurations import KINDS, ModelConfiguration
from latdoctor.collectors.server_config.endpoints import ENDPOINTS, MAX_MODELS, ConfigRequest, requests_for, used_models
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import MetricsPage
from latdoctor.dialects.to_evidence import recognise_dialects
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Subject, Window
from latdoctor.gap_code import GapCode
from latdoctor.http.client import HttpClient, HttpRequest, HttpResponse
from latdoctor.http.failure import RequestFailure
from latdoctor.sanitize import clean

TIMEOUT = 2.0  # seconds for one answer: the diagnosis does not depend on it
MAX_BYTES = 4 << 20
_AT_ONCE = 4
_OF = " of "  # between the request and the page in an artifact's source
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}


def _collect(request: CollectRequest, clock: Clock) -> CollectResult:
    """Ask each server whose page answers; a page that does not answer is the gap of the metrics pages."""
    timeout = min(request.timeout, TIMEOUT)
    targets = _targets(request.pages)
    artifacts: list[Artifact] = []
    gaps: list[Gap] = []
    for number, (target, page) in enumerate(zip(targets, fetch(targets, timeout), strict=True), 1):
        if page.body is not None:
            found = _configuration(target, page.body, number, timeout, clock)
            artifacts.extend(found.artifacts)
            gaps.extend(found.gaps)
    return CollectResult(tuple(artifacts), tuple(gaps))


def _targets(servers: Sequence[str]) -> Sequence[ScrapeTarget]:
    found: dict[str, ScrapeTarget] = {}
    for address in servers:
        try:
            target = parse_target(address)
        except ValueError:  # a gap of the metrics pages
            continue
        found.setdefault(target.url, target)
    return tuple(found.values())


def _configuration(target: ScrapeTarget, body: bytes, number: int, timeout: float, clock: Clock) -> CollectResult:
    try:
        page = exposition.parse(body, target.display)
    except SourceError:  # a gap of the metrics pages
        return CollectResult()
    dialects = [one.id for one in recognise_dialects(shipped(), [page])]
    requests = requests_for(target.url, page, dialects)
    answers = _answers(requests, timeout)
    group = f"{number}-{artifact_file_name(target.name)}"
    artifacts: list[Artifact] = []
    gaps = list(_left_out(target, page, dialects))
    failed: dict[Gap, None] = {}
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, bytes):
            name, source = f"{NAME}/{group}-{len(artifacts):02d}.json", f"{request.display}{_OF}{target.display}"
            artifacts.append(Artifact(name, NAME, group, source, clock.now(), answer))
        else:
            failed.setdefault(_unanswered(request, answer, target), None)
    return CollectResult(tuple(artifacts), (*gaps, *failed))


def _answers(requests: Sequence[ConfigRequest], timeout: float) -> Sequence[bytes | RequestFailure | HttpResponse]:
    """The answers in order; one that is no usable answer as it is."""
    with HttpClient() as direct, HttpClient(environment_proxies=True) as outward:
        calls = [partial(_answer, direct if one.loopback else outward, one, timeout) for one in requests]
        return run_concurrently(calls, _AT_ONCE, "latdoctor-config")


def _answer(client: HttpClient, request: ConfigRequest, timeout: float) -> bytes | RequestFailure | HttpResponse:
    sent = HttpRequest("GET", request.url, _HEADERS, reads=True, limit=MAX_BYTES)
    answer = client.send(sent, timeout)
    if isinstance(answer, HttpResponse) and answer.status == 200 and answer.failure is None:
        return answer.body
    return answer


def _unanswered(request: ConfigRequest, answer: RequestFailure | HttpResponse, target: ScrapeTarget) -> Gap:
    """One gap for a server: several models of it fail alike."""
    code = GapCode.REFUSED if isinstance(answer, HttpResponse) else code_of_failure(answer.code)
    if isinstance(answer, HttpResponse) and answer.status == 404:
        code = GapCode.ABSENT
    place = request.display.partition("//")[2].partition("/")[0]
    reason = f"its configuration was not read: {place} {answer.why}"
    hidden = tuple(sorted(request.endpoint.kind.signals))
    return Gap(NAME, reason, hidden, f"server/{target.name}", request.endpoint.hint, code=code)


def _left_out(target: ScrapeTarget, page: MetricsPage, dialects: Sequence[str]) -> Iterator[Gap]:
    for endpoint in (one for one in ENDPOINTS if one.per_model and one.dialect in dialects):
        count = len(used_models(endpoint, page))
        if count > MAX_MODELS:
            reason = f"the configurations of {count - MAX_MODELS} models are left out: at most {MAX_MODELS} are read"
            yield Gap(NAME, reason, (), f"server/{target.name}", code=GapCode.TOO_LARGE)


def _parse(artifacts: Sequence[Artifact]) -> Evidence:
    """The configurations of one server. A damaged answer among others is a gap."""
    parts: list[Evidence] = []
    for artifact in artifacts:
        request, _, page = artifact.source.rpartition(_OF)
        try:
            server = parse_target(page).name
        except ValueError as error:
            raise SourceError("its address is invalid", where=artifact.source, code=GapCode.UNREADABLE) from error
        content = artifact.read(MAX_BYTES)
        try:
            found = _read(content)
        except ValueError:
            reason = f"{request} is no configuration of a known form"
            gap = Gap(NAME, reason, (), None, "", Origin(artifact.name), GapCode.UNREADABLE)
            parts.append(Evidence(gaps=(gap,)))
            continue
        parts.extend(evidence_of(one, server, artifact.name, artifact.taken_at) for one in found)
    return Evidence.merge(parts)


def _read(content: bytes) -> Sequence[ModelConfiguration]:
    """Raises ValueError where it is of no kind."""
    for kind in KINDS:
        try:
            return kind.read(content)
        except (msgspec.MsgspecError, RecursionError):
            continue
    raise ValueError("of no kind")


def evidence_of(found: ModelConfiguration, place: str, artifact: str, taken_at: float | None) -> Evidence:
    """The readings of one model's configuration; `place` is the server or the file that shows it."""
    subject = f"model/{clean(found.name, 120)}@{place}"
    origin = Origin(artifact, f"model {clean(found.name, 80)}")
    window = Window(taken_at, taken_at)
    values: Mapping[str, float | str] = {
        signal: clean(value, 200) if isinstance(value, str) else value for signal, value in found.values.items()
    }
    return Evidence(
        subjects=(Subject(subject, f"server/{place}"), Subject(f"server/{place}")),
        readings=tuple(Reading(signal, subject, value, origin, window) for signal, value in values.items()),
    )


READER = SourceReader(_collect, _parse, lambda: ())
