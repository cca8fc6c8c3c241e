"""Recognise a Prometheus server or an Alertmanager by its own metrics page or its API, and list what it scrapes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from latdoctor.collectors.base import ApiEndpoint, PrometheusServer
from latdoctor.collectors.promql import client, query_plan
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.dialects.loader import shipped
from latdoctor.errors import SourceError
from latdoctor.http.client import HttpClient, HttpRequest, HttpResponse
from latdoctor.http.safe_address import is_loopback
from latdoctor.sanitize import clean, counted

TIMEOUT = 3.0  # seconds for each request
_WINDOW = 300.0  # seconds of history in which a service must have been scraped
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "latdoctor"}
_PATIENCE = 3  # timeouts for all queries together


class MonitoringKind(StrEnum):
    """A server that watches others and serves no requests of a model."""

    PROMETHEUS = "prometheus"
    ALERTMANAGER = "alertmanager"


TITLES: Mapping[MonitoringKind, str] = {
    MonitoringKind.PROMETHEUS: "Prometheus server",
    MonitoringKind.ALERTMANAGER: "Alertmanager",
}
# The family that only this kind exposes → the kind.
_FAMILIES = {
    "prometheus_build_info": MonitoringKind.PROMETHEUS,
    "alertmanager_build_info": MonitoringKind.ALERTMANAGER,
}


@dataclass(frozen=True, slots=True)
class ScrapedService:
    """An inference server that a Prometheus scrapes: its labels, and the kinds of servers (`vLLM`)."""

    job: str
    instance: str
    titles: tuple[str, ...]

    @property
    def shown(self) -> str:
        """`vllm a:8000 (vLLM)`."""
        return f"{self.job} {self.instance} ({', '.join(self.titles)})".strip()


@dataclass(frozen=True, slots=True)
class MonitoringServer:
    """`url` is the root of the API; `problem`: why its services could not be listed."""

    kind: MonitoringKind
    url: str
    version: str = ""
    services: tuple[ScrapedService, ...] = ()
    problem: str = ""

    @property
    def title(self) -> str:
        """`Prometheus server 2.42.0`."""
        return f"{TITLES[self.kind]} {self.version}".strip()

    @property
    def title_with_article(self) -> str:
        """`a Prometheus server 2.42.0`, `an Alertmanager 0.25.0`."""
        return f"{'an' if self.kind == MonitoringKind.ALERTMANAGER else 'a'} {self.title}"

    @property
    def command(self) -> str:
        """The command that diagnoses what this server watches; empty for an Alertmanager, which has no metrics."""
        return command_for(self.url, self.services) if self.kind == MonitoringKind.PROMETHEUS else ""


def command_for(url: str, services: Sequence[ScrapedService] = ()) -> str:
    """`latdoctor diagnose --prometheus URL`, of the first job where several are scraped."""
    jobs = list(dict.fromkeys(one.job for one in services))
    select = f" --select '{{job=\"{jobs[0]}\"}}'" if len(jobs) > 1 else ""
    return f"latdoctor diagnose --prometheus {url}{select}"


_SHOWN = 2  # services in one line


def watched(server: MonitoringServer) -> str:
    """`scrapes 3 inference services: vllm a:8000 (vLLM), …`; an Alertmanager has none."""
    if server.kind == MonitoringKind.ALERTMANAGER:
        return "forwards alerts (latdoctor listen receives them); it has no metrics of a service"
    if server.problem:
        return server.problem
    if not server.services:
        return f"scrapes no inference service of a known kind (last {_WINDOW / 60:.0f} min)"
    more = f" and {len(server.services) - _SHOWN} more" if len(server.services) > _SHOWN else ""
    listed = ", ".join(one.shown for one in server.services[:_SHOWN])
    return f"scrapes {counted(len(server.services), 'inference service')}: {listed}{more}"


def kind_of_page(families: Iterable[str]) -> MonitoringKind | None:
    """The kind of a metrics page by its families; None for any other server."""
    return next((_FAMILIES[name] for name in families if name in _FAMILIES), None)


def api_root(url: str) -> str:
    """The root of the API of the server whose metrics page or base address is `url`, without credentials."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    path = parts.path.rstrip("/").removesuffix("/metrics").removesuffix("/api/v1").removesuffix("/api/v2")
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", ""))


def identify(address: str, timeout: float = TIMEOUT) -> MonitoringServer | None:
    """The Prometheus or Alertmanager at `address`, with the services that it scrapes; None for any other server.

    No credentials are sent: the address was given as that of another kind of server.
    """
    try:
        root = api_root(address)
        host = urlsplit(root).hostname or ""
    except ValueError:
        return None
    access = ApiEndpoint(root, clean(root.partition("://")[2], 200), is_loopback(host))
    with HttpClient(environment_proxies=not access.loopback) as http:
        prometheus = _version(_get(http, f"{root}/api/v1/status/buildinfo", timeout), _BuildInfo)
        if prometheus is not None:
            return _with_services(MonitoringServer(MonitoringKind.PROMETHEUS, root, prometheus), access, timeout)
        alertmanager = _version(_get(http, f"{root}/api/v2/status", timeout), _Status)
    if alertmanager is not None:
        return MonitoringServer(MonitoringKind.ALERTMANAGER, root, alertmanager)
    return None


class _Build(Struct, frozen=True):
    version: str


class _BuildInfo(Struct, frozen=True):
    """Response of a Prometheus server to /api/v1/status/buildinfo."""

    status: str
    data: _Build

    @property
    def version(self) -> str:
        return self.data.version


class _Status(Struct, frozen=True):
    """Response of an Alertmanager to /api/v2/status."""

    build: _Build = msgspec.field(name="versionInfo")
    cluster: dict[str, object]

    @property
    def version(self) -> str:
        return self.build.version


def _get(http: HttpClient, url: str, timeout: float) -> bytes | None:
    reply = http.send(HttpRequest("GET", url, _HEADERS, reads=True), timeout)
    return reply.body if isinstance(reply, HttpResponse) and reply.failure is None else None


def _version(body: bytes | None, kind: type[_BuildInfo] | type[_Status]) -> str | None:
    """The version in a response; None where the response is of another kind of server."""
    if body is None:
        return None
    try:
        return clean(msgspec.json.decode(body, type=kind).version, 40)
    except UNDECODABLE:
        return None


def _with_services(server: MonitoringServer, access: ApiEndpoint, timeout: float) -> MonitoringServer:
    """Add the inference servers that had samples within the last minutes."""
    now = time.time()
    plan = query_plan.plan_for(PrometheusServer(access, now - _WINDOW, now, _WINDOW))
    planned = list(query_plan.discovery_queries(plan, shipped()))
    replies = client.run_queries(access, [one.question for one in planned], timeout, _PATIENCE * timeout)
    answers = []
    for reply in replies:
        if reply.body is None:
            return replace(server, problem=f"its services cannot be listed: it {reply.why}")
        try:
            answers.append(client.parse_result(reply.body, access.name))
        except SourceError as error:
            return replace(server, problem=f"its services cannot be listed: {error.what}")
    found = query_plan.samples_by_target(answers)
    services = tuple(
        ScrapedService(
            clean(target.job, 100),
            clean(target.instance, 100),
            tuple(dialect.title for dialect in query_plan.dialects_of(found[target])),
        )
        for target in query_plan.ranked_targets(found)
        if query_plan.serves_requests(found[target])
    )
    return replace(server, services=services)
