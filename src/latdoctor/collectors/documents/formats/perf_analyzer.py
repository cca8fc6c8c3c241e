"""Results of Triton's perf_analyzer (perf_client): the text, level by level, and the CSV of `-f`.

Times are microseconds. Beside the client's percentiles both break the time in the server down: queue, compute input,
infer and output. The text lists the models of an ensemble one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from latdoctor.collectors.documents import load_result
from latdoctor.collectors.documents.csv_rows import records
from latdoctor.collectors.documents.load_result import LoadResult, file_name, stages, subject_name
from latdoctor.collectors.documents.quantity_text import number
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Evidence, Origin, Reading, Subject
from latdoctor.sanitize import clean

_LEVEL = re.compile(r"^[\s*]*(?:Request )?(Concurrency|Rate|concurrency|rate): ?([\d.]+)", re.MULTILINE)
_CLIENT = re.compile(r"^(?:Avg|avg|p(\d{1,2}(?:\.\d+)?)) latency: (\d+) usec")
_TRANSPORT = re.compile(r"^Avg (?:HTTP|gRPC) time: (\d+) usec")
_COUNT = re.compile(r"^([A-Z][a-z ]+ count): (\d+)$")
_THROUGHPUT = re.compile(r"^Throughput: ([\d.]+) infer/sec")
_SERVER = re.compile(r"^Avg request latency: (\d+) usec(?: \((.*)\))?")
_PART = re.compile(r"([a-z ]+?) (\d+) usec")
_MODEL = re.compile(r"^(\S+), version: ?(\S*)$")
_US = 1e-6
# The parts of the server's time, and the signal that is the mean of each.
_STAGES = {
    "queue": "queue.time.mean",
    "compute": "compute.time.mean",
    "compute input": "compute.input.mean",
    "compute infer": "compute.infer.mean",
    "compute output": "compute.output.mean",
}
_COMPUTE = ("compute input", "compute infer", "compute output")
SERVER_SIGNALS = frozenset(
    {
        "queue.depth",
        "batch.size.mean",
        "client.excess.mean",
        "client.latency_ratio",
        "latency.mean",
        "response_cache.hit_ratio",
        load_result.STAGE_SHARE,
        *_STAGES.values(),
    }
)


def read(section: Section) -> Evidence:
    """The evidence of one level of load. Raises ValueError where it has no number."""
    lines = [line.strip("* \t") for line in section.text.splitlines()]
    level = _LEVEL.search(section.text)
    label = f"{level[1].lower()}={float(level[2]):g}" if level else ""
    end = next((place for place, line in enumerate(lines) if line.startswith("Server:")), len(lines))
    result, counts = _client(lines[:end]), _counts(lines[end:])
    result.label = label
    inferences = counts.get("Inference count", 0.0)
    if result.request_rate is not None and result.requests and inferences > result.requests:
        result.request_rate *= result.requests / inferences  # one request brings several inferences
    evidence = load_result.evidence(section, [result])
    servers = list(_servers(section, label, lines[end:]))
    server = next((one.value for part in servers for one in part.readings if one.signal == "latency.mean"), None)
    servers += _waiting(section, result, servers)
    excess = _excess(section, result, server if isinstance(server, float) else None)
    return Evidence.merge([evidence, Evidence(readings=tuple(excess)), *servers])


def _waiting(section: Section, result: LoadResult, servers: Sequence[Evidence]) -> list[Evidence]:
    """The mean number of requests in the server's queue: by Little's law their rate times their mean wait."""
    subject = subject_name(section, "server", result.label)
    waits = [one for part in servers for one in part.readings if one.signal == "queue.time.mean"]
    wait = next((one.value for one in waits if one.subject == subject), None)
    if result.request_rate is None or not isinstance(wait, float):
        return []
    origin = section.origin(place="throughput times the mean wait")
    return [Evidence(readings=(Reading("queue.depth", subject, result.request_rate * wait, origin),))]


def _excess(section: Section, result: LoadResult, server: float | None, bound: str = "") -> Iterator[Reading]:
    """What the client waits beyond the server's time at the same level of load; `server` is its mean in seconds.

    AT_MOST where the server's own overhead is not in its mean.
    """
    client = result.timing().mean
    if client is None or not server:
        return
    subject = subject_name(section, "client", result.label)
    origin = section.origin(place="latency of the client less that of the server")
    yield Reading("client.excess.mean", subject, max(0.0, client - server), origin, bound=bound)
    yield Reading("client.latency_ratio", subject, client / server, origin, bound=bound)


def _client(lines: list[str]) -> LoadResult:
    result = LoadResult()
    counts = _counts(lines)
    result.requests = counts.get("Request count")
    transport: float | None = None
    for line in lines:
        if found := _CLIENT.match(line):
            result.timing().put(f"p{found[1]}" if found[1] else "avg", float(found[2]) * _US)
        elif found := _TRANSPORT.match(line):
            transport = float(found[1]) * _US
        elif found := _THROUGHPUT.match(line):
            result.request_rate = number(found[1])
    if result.timing().mean is None:  # not printed where a percentile decides whether the level is stable
        result.timing().mean = transport
    return result


def _counts(lines: list[str]) -> dict[str, float]:
    """The counts up to the first composing model."""
    found: dict[str, float] = {}
    for line in lines:
        if line.startswith("Composing models"):
            break
        if counted := _COUNT.match(line):
            found.setdefault(counted[1], float(counted[2]))
    return found


def _servers(section: Section, label: str, lines: list[str]) -> Iterator[Evidence]:
    """The evidence of the server, and of each model of an ensemble."""
    server = subject_name(section, "server", label)
    subject, parent, begun = server, None, 0
    for place, line in enumerate([*lines, "end, version: "]):
        model = _MODEL.match(line)
        if model or line.startswith("Inferences/Second vs"):
            yield _server(section, subject, parent, lines[begun:place])
            if not model:
                return
            subject, parent, begun = f"model/{clean(model[1], 80)}@{server.removeprefix('server/')}", server, place


def _server(section: Section, subject: str, parent: str | None, lines: list[str]) -> Evidence:
    latency = next((found for line in lines if (found := _SERVER.match(line))), None)
    if latency is None:
        return Evidence()
    origin, counts = section.origin(place=f"{subject} of {file_name(section)}"), _counts(lines)
    parts = {name.strip(" +"): float(value) * _US for name, value in _PART.findall(latency[2] or "")}
    readings = list(_stage_readings(subject, origin, float(latency[1]) * _US, parts))
    runs, inferences = counts.get("Execution count", 0.0), counts.get("Inference count", 0.0)
    if runs > 0 and inferences >= runs and "compute infer" in parts:  # an ensemble itself does not run
        readings.append(Reading("batch.size.mean", subject, inferences / runs, origin))
    hits, misses = counts.get("Cache hit count"), counts.get("Cache miss count", 0.0)
    if hits is not None and hits + misses > 0:
        readings.append(Reading("response_cache.hit_ratio", subject, hits / (hits + misses), origin))
    return Evidence(subjects=(Subject(subject, parent),), readings=tuple(readings))


def _stage_readings(
    subject: str, origin: Origin, latency: float | None, parts: Mapping[str, float]
) -> Iterator[Reading]:
    """The mean times of the stages; `latency` is None where the overhead is not reported."""
    times = {name: parts[name] for name in _STAGES if parts.get(name, -1.0) >= 0}
    bound = "" if latency is not None else AT_LEAST
    whole = latency if latency is not None else sum(times.values())
    if whole > 0 or times:
        yield Reading("latency.mean", subject, whole, origin, bound=bound)
    for name, value in times.items():
        yield Reading(_STAGES[name], subject, value, origin)
    if "compute" not in times and all(name in times for name in _COMPUTE):
        yield Reading("compute.time.mean", subject, sum(times[name] for name in _COMPUTE), origin)
    yield from stages(subject, origin, latency, times)


def read_csv(section: Section) -> Evidence:
    """The evidence of each row, a level of load. Raises ValueError where no row has a number."""
    rows = [row for row in records(section.text) if number(row.get("Inferences/Second", "")) is not None]
    parts: list[Evidence] = []
    results: list[LoadResult] = []
    for row in rows:
        cells = {name.strip(): number(value or "") for name, value in row.items() if name and isinstance(value, str)}
        level = "Concurrency" if "Concurrency" in cells else "Request Rate"
        label = f"{level.removeprefix('Request ').lower()}={cells.get(level) or 0:g}" if len(rows) > 1 else ""
        results.append(_csv_client(cells, label))
        server = subject_name(section, "server", label)
        found = {name: cells.get(f"Server {name.title()}") for name in _STAGES}
        times = {name: value * _US for name, value in found.items() if value is not None and value >= 0}
        excess = _excess(section, results[-1], sum(times.values()), AT_MOST)
        parts.append(Evidence(readings=tuple(excess)))
        origin = section.origin(place=f"row {label}".strip())
        parts.append(
            Evidence(subjects=(Subject(server),), readings=tuple(_stage_readings(server, origin, None, times)))
        )
    return Evidence.merge([load_result.evidence(section, results), *parts])


def _csv_client(cells: Mapping[str, float | None], label: str) -> LoadResult:
    result = LoadResult(label=label, request_rate=cells.get("Inferences/Second"))
    timing = result.timing()
    for name, value in cells.items():
        if value is not None and name.lower().endswith(" latency"):
            timing.put(name.lower().removesuffix(" latency"), value * _US)
    whole = ("Client Send", "Network+Server Send/Recv", "Client Recv")
    steps = [value for name, value in cells.items() if name in whole or name.startswith("Server ")]
    if timing.mean is None and all(name in cells for name in whole):
        timing.mean = sum(value or 0.0 for value in steps) * _US
    return result


TEXT = TextFormat(
    name="perf-analyzer",
    title="the result of perf_analyzer",
    begins=re.compile(r"^[\s*]*(?:\*{3} Measurement Settings \*{3}|Request (?:concurrency|Rate|rate): ?\d)"),
    confirms=re.compile(r"(?:p\d{1,2}|Avg) latency: \d+ usec|Throughput: [\d.]+ infer/sec"),
    read=read,
    provides=load_result.SIGNALS | SERVER_SIGNALS,
)
CSV = TextFormat(
    name="perf-analyzer-csv",
    title="the CSV of perf_analyzer",
    begins=re.compile(r"^\ufeff?(?:[A-Z][\w ]*,){0,3}Inferences/Second,Client Send,"),
    read=read_csv,
    provides=load_result.SIGNALS | SERVER_SIGNALS,
    contains_times=True,
)
