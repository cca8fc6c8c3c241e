"""Trace files of Triton (`--trace-config mode=triton`): time stamps of each request, at both levels, and of ensembles.

The clock is that of the machine since its start, so that the requests have no dates. A file of a server that still
runs is not closed; what is whole of it is read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from latdoctor.collectors.documents import traced_requests
from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.request_spans import Span
from latdoctor.collectors.documents.samples import timing_of
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject
from latdoctor.sanitize import clean

_MAX_REQUESTS = 500_000
# The stages of a request: name, where it begins and ends, the signal that is its mean.
_STAGES = (
    ("receive", "HTTP_RECV_START", "HTTP_RECV_END", ""),
    ("queue", "QUEUE_START", "COMPUTE_START", "queue.time.mean"),
    ("compute input", "COMPUTE_START", "COMPUTE_INPUT_END", "compute.input.mean"),
    ("compute infer", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "compute.infer.mean"),
    ("compute output", "COMPUTE_OUTPUT_START", "COMPUTE_END", "compute.output.mean"),
    ("send", "HTTP_SEND_START", "HTTP_SEND_END", ""),
    ("send", "GRPC_SEND_START", "GRPC_SEND_END", ""),
)
_COMPUTE = ("compute", "COMPUTE_START", "COMPUTE_END", "compute.time.mean")
_NS = 1e-9
_SERVICE = "triton"


class _Stamp(msgspec.Struct):
    name: str
    ns: int


class _Record(msgspec.Struct):
    """A part of a request's trace: what it is, or some of its time stamps."""

    id: int
    model_name: str = ""
    parent_id: int = 0
    timestamps: tuple[_Stamp, ...] = ()


class _TracedRequest(msgspec.Struct):
    model: str = ""
    parent: int = 0
    stamps: dict[str, int] = {}


def read(section: Section) -> Evidence:
    """The evidence of the requests, of all and by model. Raises ValueError."""
    requests = _requests(section.text)
    spans = [span for number, request in requests.items() for span in _spans(number, request, requests)]
    found = traced_requests.evidence(spans, section.artifact, file_name(section), dated=False)
    return Evidence.merge([found, _models(section, requests.values())])


def _records(text: str) -> list[_Record]:
    """The records; of a file that is not closed those before the cut."""
    body = text.strip()
    decoder = msgspec.json.Decoder(list[_Record], strict=False)
    for candidate in (body, body.rstrip(", \n") + "]", body[: body.rfind("}\n") + 1] + "]"):
        with contextlib.suppress(msgspec.DecodeError):  # the next is tried, and the last raises
            return decoder.decode(candidate)
    return decoder.decode(_lines(body))


def _lines(body: str) -> str:
    """A record on each line, or one after another, as a list."""
    joined = re.sub(r"\}\s*,?\s*\n\s*\{", "},{", body.strip("[], \n"))
    return f"[{joined[: joined.rfind('}') + 1]}]"


def _requests(text: str) -> dict[int, _TracedRequest]:
    found: dict[int, _TracedRequest] = {}
    for record in _records(text):
        if record.id not in found and len(found) >= _MAX_REQUESTS:
            continue
        request = found.setdefault(record.id, _TracedRequest(stamps={}))
        request.model = request.model or record.model_name
        request.parent = request.parent or record.parent_id
        for stamp in record.timestamps:
            request.stamps.setdefault(_name(stamp.name), stamp.ns)
    return found


def _name(text: str) -> str:
    """`queue start` and `request handler start` of the first versions, `QUEUE_START` of the later."""
    return re.sub(r"\s+", "_", text.strip().upper()).replace("REQUEST_HANDLER", "REQUEST")


def _whole(stamps: Mapping[str, int]) -> tuple[int, int] | None:
    """Begin and end of a request in the server; None where one is missing or they are reversed."""
    start = next((stamps[name] for name in ("REQUEST_START", "QUEUE_START") if name in stamps), None)
    end = next((stamps[name] for name in ("REQUEST_END", "COMPUTE_END") if name in stamps), None)
    return None if start is None or end is None or end < start else (start, end)


def _parts(stamps: Mapping[str, int]) -> Iterator[tuple[str, int, int, str]]:
    divided = "COMPUTE_INPUT_END" in stamps and "COMPUTE_OUTPUT_START" in stamps
    for name, begins, ends, signal in (*_STAGES, *([] if divided else [_COMPUTE])):
        if begins in stamps and ends in stamps and stamps[ends] >= stamps[begins]:
            yield name, stamps[begins], stamps[ends], signal


def _spans(number: int, request: _TracedRequest, every: Mapping[int, _TracedRequest]) -> Iterator[Span]:
    """The request as a span and its stages as children; a model of an ensemble is a child of the ensemble."""
    whole = _whole(request.stamps)
    if whole is None:
        return
    parent = request.parent if request.parent in every else 0
    top = number
    for _ in range(16):  # ensembles of ensembles
        if every[top].parent not in every:
            break
        top = every[top].parent
    name, trace = clean(request.model or "model", 60), str(top)
    before = f"{name} " if parent else ""
    yield Span(trace, str(number), str(parent) if parent else "", name, _SERVICE, whole[0] * _NS, whole[1] * _NS)
    for place, (stage, start, end, _) in enumerate(_parts(request.stamps)):
        if whole[0] <= start and end <= whole[1]:
            yield Span(trace, f"{number}/{place}", str(number), f"{before}{stage}", _SERVICE, start * _NS, end * _NS)


def _models(section: Section, requests: Iterable[_TracedRequest]) -> Evidence:
    """The mean times of each model."""
    times: dict[str, dict[str, list[float]]] = {}
    for request in requests:
        whole = _whole(request.stamps)
        if whole is None or not request.model:
            continue
        found = times.setdefault(clean(request.model, 120), {})
        found.setdefault("latency.mean", []).append((whole[1] - whole[0]) * _NS)
        parts = [(signal, (end - start) * _NS) for _, start, end, signal in _parts(request.stamps) if signal]
        for signal, seconds in parts:
            found.setdefault(signal, []).append(seconds)
        compute = [seconds for signal, seconds in parts if signal.startswith("compute.")]
        if compute and "compute.time.mean" not in dict(parts):
            found.setdefault("compute.time.mean", []).append(sum(compute))
    readings, subjects = [], []
    for model, signals in times.items():
        subject = f"model/{model}@{file_name(section)}"
        subjects.append(Subject(subject))
        origin = section.origin(place=f"model {model}")
        for signal, values in signals.items():
            timing = timing_of(values)
            if timing.mean is not None:
                readings.append(Reading(signal, subject, timing.mean, origin, note=f"of {len(values)} requests"))
    return Evidence(subjects=tuple(subjects), readings=tuple(readings))


FORMAT = TextFormat(
    name="triton-trace",
    title="a trace file of Triton",
    begins=re.compile(
        r'\A\s*\[?\s*\{\s*"(?:id|model_name|model_version|parent_id|request_id)"\s*:(?=[\s\S]*?"timestamps"\s*:\s*\[\s*\{)(?=[\s\S]*?"ns"\s*:\s*\d)'
    ),
    read=read,
    provides=traced_requests.SIGNALS | {"queue.time.mean", *(signal for *_, signal in (*_STAGES, _COMPUTE) if signal)},
    whole=True,
)
