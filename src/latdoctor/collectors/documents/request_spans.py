"""Requests from the spans of distributed traces: whose time each moment of a request was.

Spans are joined by their parents. Each moment belongs to the innermost span that the request waits for: from the end of
a span backwards to the child that ended last, so that the parts add up to the whole, also where children run in
parallel. What no child of the outermost span accounts for belongs to no stage.

Clocks of two services may differ. A child in another service that lies outside its parent is moved to its middle: its
duration counts, and when it began is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from latdoctor.collectors.documents.load_result import NO_STAGE
from latdoctor.sanitize import clean

_SLACK = 1e-3  # seconds by which a child may lie outside its parent without another clock
_MAX_DEPTH = 64
MAX_STAGES = 12
OTHER_STAGES = "other spans"


@dataclass(slots=True)
class Span:
    """One span; times are unix seconds. `parts` are durations within it that its attributes report, by stage."""

    trace: str
    id: str
    parent: str
    name: str
    service: str
    start: float
    end: float
    failed: bool = False
    of_store: bool = False  # a call of a database, a cache or a queue of messages
    values: dict[str, float] = field(default_factory=dict)  # by signal: ttft, input.length
    parts: dict[str, float] = field(default_factory=dict)
    children: list[Span] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A request by its outermost span, with the time of each stage (NO_STAGE among them) in seconds."""

    span: Span
    stages: Mapping[str, float]


@dataclass(slots=True)
class SpanForest:
    """The requests of a file, and what was odd: `skewed` counts moved spans by service, `orphans` lack their parent."""

    requests: list[TracedRequest] = field(default_factory=list)
    skewed: Counter[str] = field(default_factory=Counter)
    shift: float = 0.0  # the largest distance by which a span was moved, seconds
    orphans: int = 0
    broken: int = 0  # spans that end before they begin, or belong to themselves


def store_seconds(root: Span) -> float:
    """The time in which a call of a data store is open, of those that are no part of another one."""
    waiting, calls = [(root, 0)], []
    while waiting:
        span, depth = waiting.pop()
        if span.of_store:
            calls.append((max(span.start, root.start), min(span.end, root.end)))
        elif depth < _MAX_DEPTH:
            waiting.extend((child, depth + 1) for child in span.children)
    total, until = 0.0, root.start
    for start, end in sorted(calls):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def requests_of(spans: Iterable[Span]) -> SpanForest:
    """Join the spans of each trace and divide the time of its outermost span."""
    forest = SpanForest()
    by_trace: dict[str, dict[str, Span]] = {}
    for span in spans:
        if span.end < span.start:
            forest.broken += 1
        else:
            by_trace.setdefault(span.trace, {}).setdefault(span.id, span)
    for members in by_trace.values():
        root = _join(members, forest)
        if root is not None:
            _align(root, forest)
            forest.requests.append(TracedRequest(root, _stages(root)))
    forest.requests.sort(key=lambda one: one.span.start)
    return forest


def _join(members: Mapping[str, Span], forest: SpanForest) -> Span | None:
    """The outermost span of a trace: of several the longest without a parent."""
    roots = []
    for span in members.values():
        parent = members.get(span.parent) if span.parent != span.id else None
        if parent is None:
            roots.append(span)
            forest.orphans += bool(span.parent)
        else:
            parent.children.append(span)
    if not roots:
        forest.broken += len(members)
        return None
    true = [span for span in roots if not span.parent] or roots
    return max(true, key=lambda span: span.seconds)


def _align(root: Span, forest: SpanForest) -> None:
    """Move what lies outside its parent by another clock."""
    waiting = [(root, 0)]
    while waiting:
        parent, depth = waiting.pop()
        for child in parent.children if depth < _MAX_DEPTH else ():
            outside = max(parent.start - child.start, child.end - parent.end)
            if child.service != parent.service and outside > _SLACK and child.seconds <= parent.seconds:
                shift = parent.start + (parent.seconds - child.seconds) / 2 - child.start
                _move(child, shift)
                forest.skewed[child.service] += 1
                forest.shift = max(forest.shift, abs(shift))
            waiting.append((child, depth + 1))


def _move(span: Span, shift: float) -> None:
    waiting = [span]
    while waiting:
        one = waiting.pop()
        one.start, one.end = one.start + shift, one.end + shift
        waiting.extend(one.children)


def _stages(root: Span) -> dict[str, float]:
    """The time of each stage; empty where neither a child nor an attribute divides the request."""
    if not root.children and not root.parts:
        return {}
    found: dict[str, float] = {}
    several = _several_services(root)
    _divide(root, root.start, root.end, found, NO_STAGE, several=several, depth=0)
    return found


def _divide(
    span: Span, start: float, end: float, found: dict[str, float], name: str, *, several: bool, depth: int
) -> None:
    """Give the time from `start` to `end` of `span` to its children and, for what is left, to `name`."""
    own, cursor = 0.0, end
    for child in sorted(span.children, key=lambda one: one.end, reverse=True) if depth < _MAX_DEPTH else ():
        last, first = min(child.end, cursor), max(child.start, start)
        if last <= first:
            continue
        own += cursor - last
        label = f"{child.service} {child.name}" if several and child.service else child.name
        _divide(child, first, last, found, clean(label, 40), several=several, depth=depth + 1)
        cursor = first
    own += cursor - start
    reported = sum(span.parts.values())
    scale = min(1.0, own / reported) if reported > 0 else 0.0
    for part, seconds in span.parts.items():
        found[part] = found.get(part, 0.0) + seconds * scale
    rest = own - reported * scale
    if rest > 0:
        found[name] = found.get(name, 0.0) + rest


def _several_services(root: Span) -> bool:
    services: set[str] = set()
    waiting = [root]
    while waiting and len(services) < 2:
        one = waiting.pop()
        services.add(one.service)
        waiting.extend(one.children)
    return len(services) > 1


def stage_columns(requests: Sequence[TracedRequest]) -> dict[str, list[float]]:
    """The time of every stage in every request, seconds; the smallest of many stages together as OTHER_STAGES."""
    total: Counter[str] = Counter()
    for request in requests:
        total.update({name: seconds for name, seconds in request.stages.items() if name != NO_STAGE})
    kept = [name for name, _ in total.most_common(MAX_STAGES)]
    names = [*kept, *([OTHER_STAGES] if len(total) > len(kept) else []), NO_STAGE]
    columns = {name: [request.stages.get(name, 0.0) for request in requests] for name in names}
    if OTHER_STAGES in columns:
        known = {*kept, NO_STAGE}
        columns[OTHER_STAGES] = [
            sum(seconds for name, seconds in request.stages.items() if name not in known) for request in requests
        ]
    return {name: values for name, values in columns.items() if any(values)}
