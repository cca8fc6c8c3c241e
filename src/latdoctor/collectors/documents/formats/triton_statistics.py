"""Statistics of Triton models: the JSON of `v2/models/stats`, or of its gRPC client. Durations are sums in nanoseconds.

One file covers the life of the server; of two the difference is read, the one with the later inference last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.load_result import STAGE_SHARE, file_name, stages
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.dialects.evaluate import LIFETIME
from latdoctor.evidence.model import Bucket, Distribution, Evidence, Gap, Origin, Reading, Subject, Window
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

_STAGES = {
    "queue": "queue.time.mean",
    "compute input": "compute.input.mean",
    "compute infer": "compute.infer.mean",
    "compute output": "compute.output.mean",
}
_SIGNALS = frozenset(
    {
        *_STAGES.values(),
        "batch.size",
        "batch.size.mean",
        "completion.rate",
        "compute.time.mean",
        "error.ratio",
        "forward.rate",
        "latency.mean",
        "response_cache.hit_ratio",
        STAGE_SHARE,
    }
)
_LEAST_WINDOW = 1.0  # seconds between two files for a rate


class _Duration(msgspec.Struct):
    count: int = 0
    ns: int = 0

    def since(self, before: _Duration) -> _Duration:
        return _Duration(self.count - before.count, self.ns - before.ns)


class _Batch(msgspec.Struct):
    batch_size: int = 0
    compute_infer: _Duration = msgspec.field(default_factory=_Duration)


class _Model(msgspec.Struct):
    name: str
    version: str = ""
    last_inference: int = 0  # unix milliseconds
    inference_count: int = 0
    execution_count: int = 0
    inference_stats: dict[str, _Duration] = {}  # success, fail, queue, compute_infer, cache_hit …
    batch_stats: tuple[_Batch, ...] = ()

    def since(self, before: _Model) -> _Model:
        sizes = {one.batch_size: one.compute_infer for one in before.batch_stats}
        return _Model(
            self.name,
            self.version,
            self.last_inference,
            self.inference_count - before.inference_count,
            self.execution_count - before.execution_count,
            {
                name: one.since(before.inference_stats.get(name, _Duration()))
                for name, one in self.inference_stats.items()
            },
            tuple(
                _Batch(one.batch_size, one.compute_infer.since(sizes.get(one.batch_size, _Duration())))
                for one in self.batch_stats
            ),
        )

    @property
    def valid(self) -> bool:
        """Whether no count is negative: one that fell belongs to a server that was restarted."""
        counts = [self.inference_count, self.execution_count]
        counts += [number for one in self.inference_stats.values() for number in (one.count, one.ns)]
        counts += [one.compute_infer.count for one in self.batch_stats]
        return min(counts) >= 0


class _Statistics(msgspec.Struct):
    model_stats: tuple[_Model, ...]

    @property
    def last(self) -> int:
        return max((one.last_inference for one in self.model_stats), default=0)


def read(section: Section) -> Evidence:
    """The evidence since the server's start. Raises ValueError."""
    found = _parsed(section)
    return _evidence(section, found.model_stats, LIFETIME, Window(None, found.last / 1e3 or None))


def read_together(sections: Sequence[Section]) -> Evidence:
    """The evidence of the time between the first and the last of several files. Raises ValueError."""
    pairs = sorted(((_parsed(one), one) for one in sections), key=lambda pair: pair[0].last)
    (first, _), (last, section) = pairs[0], pairs[-1]
    before = {(one.name, one.version): one for one in first.model_stats}
    known = [(one, one.since(before[key]) if (key := (one.name, one.version)) in before else one)
             for one in last.model_stats]  # fmt: skip
    grown = [since for _, since in known if since.valid]
    window = Window(first.last / 1e3 or None, last.last / 1e3 or None)
    gaps = [
        Gap(
            NAME,
            f"{section.source}: counts of {clean(one.name, 60)} decreased: the server restarted between the files",
            tuple(sorted(_SIGNALS)),
            _subject(section, one),
            "save the statistics twice again",
            section.origin(),
            GapCode.INCONSISTENT,
        )
        for one, since in known
        if not since.valid
    ]
    return Evidence.merge([_evidence(section, grown, "", window), Evidence(gaps=tuple(gaps))])


def _parsed(section: Section) -> _Statistics:
    return msgspec.json.decode(section.text, type=_Statistics, strict=False)  # counts of the gRPC client are texts


def _evidence(section: Section, models: Sequence[_Model], note: str, window: Window) -> Evidence:
    names = [one.name for one in models]
    parts = [_model(section, one, note, window, several=names.count(one.name) > 1) for one in models]
    if not any(part.readings for part in parts):
        gap = Gap(NAME, f"{section.source}: no request was counted", (), None, "", section.origin(), GapCode.EMPTY)
        parts.append(Evidence(gaps=(gap,)))
    return Evidence.merge(parts)


def _subject(section: Section, model: _Model, *, several: bool = False) -> str:
    version = f":version={clean(model.version, 40)}" if several else ""
    return f"model/{clean(model.name, 120)}{version}@{file_name(section)}"


def _model(section: Section, model: _Model, note: str, window: Window, *, several: bool) -> Evidence:
    """An unused model yields nothing."""
    subject = _subject(section, model, several=several)
    origin = section.origin(place=f"model {clean(model.name, 80)}")
    values = dict(_values(model, window))
    if not values:
        return Evidence()
    readings = [
        Reading(signal, subject, value, origin, window, note=note if "rate" not in signal else "by the last inferences")
        for signal, value in values.items()
    ]
    if "latency.mean" in values:
        parts = {name: values[signal] for name, signal in _STAGES.items() if signal in values}
        readings.extend(stages(subject, origin, values["latency.mean"], parts))
    sizes = tuple(
        Bucket(float(one.batch_size), float(one.batch_size), float(one.compute_infer.count))
        for one in model.batch_stats
        if one.compute_infer.count > 0
    )
    return Evidence(
        subjects=(Subject(subject),),
        readings=tuple(readings),
        distributions=_sizes(sizes, subject, origin, window),
    )


def _sizes(buckets: tuple[Bucket, ...], subject: str, origin: Origin, window: Window) -> tuple[Distribution, ...]:
    total = sum(one.low * one.count for one in buckets)
    return (Distribution("batch.size", subject, buckets, origin, total, window),) if buckets else ()


def _values(model: _Model, window: Window) -> Iterator[tuple[str, float]]:
    found = model.inference_stats
    done = found.get("success", _Duration()).count
    if done:
        yield "latency.mean", found["success"].ns / done / 1e9
        for stage, signal in _STAGES.items():
            name = stage.replace(" ", "_")
            if name in found:
                yield signal, found[name].ns / done / 1e9
        if "compute_infer" in found:
            parts = (one for name, one in found.items() if name.startswith("compute_"))
            yield "compute.time.mean", sum(one.ns for one in parts) / done / 1e9
    if "fail" in found and done + found["fail"].count:
        yield "error.ratio", found["fail"].count / (done + found["fail"].count)
    if model.execution_count > 0 and not model.batch_stats:
        yield "batch.size.mean", model.inference_count / model.execution_count
    hits, misses = (found.get(name, _Duration()).count for name in ("cache_hit", "cache_miss"))
    if hits + misses:
        yield "response_cache.hit_ratio", hits / (hits + misses)
    seconds = window.seconds
    if done and seconds and seconds >= _LEAST_WINDOW:
        yield "completion.rate", done / seconds
        yield "forward.rate", model.execution_count / seconds


FORMAT = TextFormat(
    name="triton-statistics",
    title="statistics of Triton",
    begins=re.compile(r'\A\s*\{\s*"model_stats"\s*:\s*\['),
    read=read,
    provides=_SIGNALS,
    whole=True,
    entries=1,
    read_together=read_together,
)
