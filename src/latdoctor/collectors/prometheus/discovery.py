"""Discovery of metrics pages on this machine: GET /metrics on every port that listens on the loopback interface."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from urllib.parse import urlsplit

from latdoctor.collectors.prometheus import exposition, scrape
from latdoctor.collectors.promql.recognise_monitoring_server import TITLES, MonitoringKind, identify, kind_of_page
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import MetricsPage
from latdoctor.dialects.model import Dialect
from latdoctor.dialects.to_evidence import recognise_dialects
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Gap
from latdoctor.gap_code import GapCode, code_of_os_error
from latdoctor.sanitize import clean

MAX_PORTS = 64
TIMEOUT = 0.5  # seconds per port: a local page responds at once
MAX_BYTES = 8 << 20
_FAMILIES_SHOWN = 5
_LISTEN = "0A"
_MONITORING_PORTS = (9090, 9093)  # the usual ones of Prometheus and Alertmanager, asked by their APIs as well
# Usual ports of inference servers and exporters: Triton, vLLM, TorchServe, DCGM, SGLang, Ray, node.
_LIKELY = (8002, 8000, 8082, 9400, 8080, 8001, 30000, 3000, 9100)
# Services without HTTP, some of which log or count a stray request as an attack.
_NOT_PROBED = frozenset({21, 22, 23, 25, 53, 110, 111, 139, 143, 389, 445, 465, 587, 631, 993, 2049, 3306, 5432, 5672})
_NOT_PROBED_HIGH = frozenset({6379, 9042, 9092, 11211, 27017})


@dataclass(frozen=True, slots=True)
class DiscoveredPage:
    """A metrics page; `dialects` are the ids of its dialects, empty if unknown, `models` the models that it names."""

    url: str
    title: str
    dialects: tuple[str, ...]
    families: tuple[str, ...]  # the first few, to identify an unknown page
    monitoring: MonitoringKind | None = None  # it is the page of a Prometheus or an Alertmanager itself
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """The pages found, known dialects first, and what limited the search."""

    found: tuple[DiscoveredPage, ...]
    ports_probed: int
    gaps: tuple[Gap, ...] = ()


def discover() -> tuple[DiscoveredPage, ...]:
    """Return the metrics pages on this machine's ports, known dialects first."""
    return discover_pages().found


def discover_pages(proc: Path = Path("/proc/net"), timeout: float = TIMEOUT, most: int = MAX_PORTS) -> DiscoveryResult:
    """Request a metrics page from every listening loopback port: at most `most` ports, `timeout` seconds each."""
    places, gaps = _listening(proc)
    if len(places) > most:
        reason = f"{len(places)} ports are listening; only {most} were probed"
        gaps.append(Gap("local ports", reason, (), None, "name the server (--server URL)", code=GapCode.TOO_LARGE))
    targets = [scrape.parse_target(f"http://{place}/metrics") for place in places[:most]]
    answers = scrape.fetch(targets, timeout, MAX_BYTES) if targets else ()
    found = [
        page
        for target, answer in zip(targets, answers, strict=True)
        if answer.body is not None and (page := _page(target.display, answer.body))
    ]
    unread = [target for target, answer in zip(targets, answers, strict=True) if answer.body is None]
    usual = [target for target in unread if urlsplit(target.url).port in _MONITORING_PORTS]
    found += [server for target in usual if (server := _by_api(target, timeout))]
    found.sort(key=lambda page: (not page.dialects, page.monitoring is None, page.url))
    return DiscoveryResult(tuple(found), len(targets), tuple(gaps))


def dialects_at(url: str, timeout: float = 2.0) -> tuple[str, ...]:
    """The ids of the dialects of one metrics page; empty where it cannot be read."""
    try:
        target = scrape.parse_target(url)
    except ValueError:
        return ()
    (answer,) = scrape.fetch([target], timeout, MAX_BYTES)
    page = None if answer.body is None else _page(target.display, answer.body)
    return page.dialects if page else ()


def _page(url: str, body: bytes) -> DiscoveredPage | None:
    try:
        page = exposition.parse(body, url)
    except SourceError:
        return None  # another service, which is not a failure
    dialects = recognise_dialects(shipped(), [page])
    monitoring = None if dialects else kind_of_page(page.names)
    title = ", ".join(dialect.title for dialect in dialects) or (TITLES[monitoring] if monitoring else "unknown")
    families = tuple(clean(name, 80) for name in page.names[:_FAMILIES_SHOWN])
    ids = tuple(dialect.id for dialect in dialects)
    return DiscoveredPage(url, title, ids, families, monitoring, _models(page, dialects))


def _models(page: MetricsPage, dialects: Sequence[Dialect]) -> tuple[str, ...]:
    """The models that the page's samples name, by the labels that its dialects know."""
    rules = [rule for dialect in dialects for rule in dialect.subjects if rule.id.startswith("model/")]
    labels = {label for rule in rules for label in rule.labels}
    samples = (sample for found in page.samples.values() for sample in found)
    names = (value for sample in samples for label in labels if (value := sample.label(label)))
    return tuple(dict.fromkeys(clean(name, 120) for name in names))


def _by_api(target: scrape.ScrapeTarget, timeout: float) -> DiscoveredPage | None:
    """A Prometheus or an Alertmanager whose metrics page is somewhere else, such as below a prefix."""
    server = identify(target.url, timeout)
    if server is None:
        return None
    return DiscoveredPage(target.display, TITLES[server.kind], (), (), server.kind)


def _listening(proc: Path) -> tuple[list[str], list[Gap]]:
    """`host:port` of every socket reachable on the loopback interface, likely ports first."""
    found: dict[int, str] = {}
    gaps: list[Gap] = []
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / table).read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError as error:
            if table == "tcp":
                reason = f"{proc / table} cannot be read: {error.strerror}"
                gaps.append(
                    Gap("local ports", reason, (), None, "name the server (--server URL)", code=code_of_os_error(error))
                )
            continue  # a machine without IPv6 has no tcp6
        for line in lines:
            place = _place(line)
            if place and place[1] not in _NOT_PROBED | _NOT_PROBED_HIGH:
                found.setdefault(place[1], place[0])
    likely = {port: rank for rank, port in enumerate(_LIKELY)}
    ports = sorted(found, key=lambda port: (likely.get(port, len(likely)), port))
    return [f"{found[port]}:{port}" for port in ports], gaps


def _place(line: str) -> tuple[str, int] | None:
    """The loopback host and the port of a line of /proc/net/tcp: `sl local remote state …`; None for others."""
    fields = line.split()
    if len(fields) < 4 or fields[3] != _LISTEN:
        return None
    try:
        address, port = fields[1].split(":")
        host = _host(_address(bytes.fromhex(address)))
        return (host, int(port, 16)) if host else None
    except ValueError:
        return None


def _address(raw: bytes) -> IPv4Address | IPv6Address:
    """Parse an address; the kernel prints each 32-bit word in native byte order. Raises ValueError for a bad length."""
    if len(raw) not in (4, 16):
        raise ValueError("not an address")
    words = [raw[i : i + 4] for i in range(0, len(raw), 4)]
    ordered = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    address = ip_address(ordered)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _host(address: IPv4Address | IPv6Address) -> str:
    """How to reach a socket bound to `address` from here; empty for one bound to another interface."""
    if address.is_unspecified:
        return "127.0.0.1"  # a socket bound to :: accepts IPv4 as well, by default
    if not address.is_loopback:
        return ""
    return f"[{address}]" if isinstance(address, IPv6Address) else str(address)
