"""Which layer of the model an operator belongs to: the innermost module around it on its thread.

Where no module was recorded around it (with_modules=True records them), its layer is the outermost operator around it,
itself included: `aten::linear` for the `aten::addmm` that it calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from latdoctor.collectors.torch_trace.disk_spill import NO_KEY, Spool, swept
from latdoctor.collectors.torch_trace.event_names import kind_of_kernel
from latdoctor.collectors.torch_trace.event_store import MODULE, OPERATOR
from latdoctor.collectors.torch_trace.summary import GpuTimeOwners, LayerTime, OperatorTime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from latdoctor.collectors.torch_trace.disk_spill import Numbers, Rows
    from latdoctor.collectors.torch_trace.event_store import TraceStore
    from latdoctor.collectors.torch_trace.intervals import Floats

    Mask = NDArray[np.bool_]


# Modules lie some ten deep in one another. More than these, or more that are open at once, is damage.
_DEEPEST = 64
_MOST_OPEN = 256


class LayerAssigner:
    """Takes the operators and modules of a trace window by window, in order of time."""

    def __init__(self) -> None:
        self._threads: dict[int, _ThreadLayers] = {}

    def take(self, rows: Rows, high: float) -> Numbers:
        """The label of each row's layer; that of a module's own row has no meaning. `high` is where the window ends."""
        threads = rows["place"] >> 1
        if len(rows) and (threads == threads[0]).all():
            return self._threads.setdefault(int(threads[0]), _ThreadLayers()).take(rows, high)
        found = np.empty(len(rows), np.int32)
        order = np.argsort(threads, kind="stable")
        for begin, end in pairwise(np.flatnonzero(np.diff(threads[order], prepend=-1, append=-1)).tolist()):
            own = order[begin:end]
            thread = self._threads.setdefault(int(threads[own[0]]), _ThreadLayers())
            found[own] = thread.take(rows[own], high)
        return found


class _Spans(Struct, frozen=True):
    """Intervals sorted by their starts, the longer ones first, and their labels."""

    starts: Floats
    ends: Floats
    labels: Numbers

    def where(self, chosen: Mask) -> _Spans:
        return _Spans(self.starts[chosen], self.ends[chosen], self.labels[chosen])

    def outermost(self, reach: float = -np.inf) -> Mask:
        """Which of them begin after all before them have ended; those before the first end at `reach`."""
        return self.starts >= np.maximum.accumulate(np.concatenate(([reach], self.ends)))[:-1]


class _ThreadLayers:
    """What is open on one thread where a window begins."""

    def __init__(self) -> None:
        self._reach, self._outermost = -np.inf, 0
        nothing = np.zeros(0)
        self._open = _Spans(nothing, nothing, np.zeros(0, np.int32))

    def take(self, rows: Rows, high: float) -> Numbers:
        order = _outer_first(rows)
        own = rows if order is None else rows[order]
        spans = _Spans(own["start"], own["start"] + own["dur"], own["label"])
        are_modules = own["place"] & 1 == MODULE
        if order is None and not are_modules.any() and not len(self._open.starts):
            return self._outer(spans)
        operators = spans.where(~are_modules)
        layers = self._outer(operators)
        self._inner(operators, spans.where(are_modules), layers, high)
        found = np.zeros(len(rows), np.int32)
        found[~are_modules if order is None else order[~are_modules]] = layers
        return found

    def _outer(self, operators: _Spans) -> Numbers:
        """The label of the outermost operator around each."""
        if not len(operators.starts):
            return operators.labels
        opens = operators.outermost(self._reach)
        last = np.maximum.accumulate(np.where(opens, np.arange(len(opens)), -1))
        found = np.where(last >= 0, operators.labels[last], self._outermost).astype(np.int32)
        self._reach, self._outermost = max(self._reach, float(operators.ends.max())), int(found[-1])
        return found

    def _inner(self, operators: _Spans, new: _Spans, layers: Numbers, high: float) -> None:
        """Writes the innermost module around each operator into `layers`, from the outermost modules inwards."""
        opened = self._open
        modules = _Spans(
            *(np.concatenate([getattr(part, side) for part in (opened, new)]) for side in ("starts", "ends", "labels"))
        )
        still = np.flatnonzero(modules.ends > high)[-_MOST_OPEN:]
        self._open = _Spans(modules.starts[still], modules.ends[still], modules.labels[still])
        inside = np.arange(len(layers))
        for _ in range(_DEEPEST):
            if not len(modules.starts) or not len(inside):
                return
            opens = modules.outermost()
            level = modules.where(opens)
            starts, ends = operators.starts[inside], operators.ends[inside]
            around = np.searchsorted(level.starts, starts, side="right") - 1
            # Of two that begin together, the longer one is around the other.
            held = (around >= 0) & (level.ends[around] > starts)
            held &= (level.starts[around] < starts) | (level.ends[around] >= ends)
            inside = inside[held]
            layers[inside] = level.labels[around[held]]
            modules = modules.where(~opens)


def _outer_first(rows: Rows) -> NDArray[np.intp] | None:
    """The order in which what contains another comes before it, where `rows`, sorted by start, are not in it."""
    start, dur, place = rows["start"], rows["dur"], rows["place"]
    later = (dur[1:] > dur[:-1]) | ((dur[1:] == dur[:-1]) & (place[1:] > place[:-1]))
    if not ((start[1:] == start[:-1]) & later).any():
        return None
    return np.lexsort((-place, -dur, start))


TOP = 10
_MOST_PAIRS = 1 << 16  # of a layer and an operator
_MOST_COUNTED = 1 << 17


def time_by_kind(times: Mapping[str, float]) -> Mapping[str, float]:
    """Seconds of kernels by what they do, from seconds by name."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, time in times.items():
        found[kind_of_kernel(name)] += time
    return dict(found)


class _Pairs:
    """Seconds of kernels by what `codes` number: a layer and an operator in one."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def take(self, codes: NDArray[np.int64], seconds: Floats) -> None:
        if not len(codes):
            return
        if codes.max() < _MOST_COUNTED:  # as in most traces; to count is faster than to sort
            times = np.bincount(codes, seconds)
            found = np.flatnonzero(times)
            times = times[found]
        else:
            found, which = np.unique(codes, return_inverse=True)
            times = np.bincount(which, seconds)
        for code, time in zip(found.tolist(), times.tolist(), strict=True):
            if code in self.times or len(self.times) < _MOST_PAIRS:
                self.times[code] = self.times.get(code, 0.0) + time


def owners(columns: TraceStore, device: int) -> GpuTimeOwners:
    """The operators and layers of the trace, those that kept `device` longest first. Empty where nothing is linked."""
    names = columns.operator_names.listed
    count = max(1, len(names))
    pairs = _Pairs()
    with Spool() as owned:
        calls, host = _owned(columns, owned, count)
        for _, _, [kernels, own] in swept([columns.links, owned]):
            ours = kernels[kernels["place"] == device]
            if not len(own) or not len(ours):
                continue
            found = np.minimum(np.searchsorted(own["start"], ours["start"]), len(own) - 1)
            linked = own["start"][found] == ours["start"]
            by = own[found[linked]]
            pairs.take(by["place"].astype(np.int64) * count + by["label"], ours["dur"][linked] * 1e-6)
    gpu = np.zeros(count)
    layers: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for code, time in pairs.times.items():
        layer, operator = divmod(code, count)
        gpu[operator] += time
        layers[names[layer]][names[operator]] = time
    longest = np.lexsort((host, gpu))[::-1].tolist()
    return GpuTimeOwners(
        tuple(OperatorTime(names[at], int(calls[at]), float(host[at]), float(gpu[at])) for at in longest if calls[at])[
            :TOP
        ],
        tuple(sorted((_layer(name, times) for name, times in layers.items()), key=lambda one: -one.gpu))[:TOP],
    )


def _layer(name: str, times: Mapping[str, float]) -> LayerTime:
    longest = sorted(times.items(), key=lambda pair: -pair[1])[:TOP]
    return LayerTime(name, sum(times.values()), tuple(longest))


def _owned(columns: TraceStore, owned: Spool, count: int) -> tuple[NDArray[np.int64], Floats]:
    """Put the operators with an id into `owned`, their layers as places; return calls and seconds of all."""
    calls, host, layers = np.zeros(count, np.int64), np.zeros(count), LayerAssigner()
    for _, high, [rows] in swept([columns.operators]):
        found = layers.take(rows, high)
        ours = rows["place"] & 1 == OPERATOR
        own, their_layers = (rows, found) if ours.all() else (rows[ours], found[ours])
        calls += np.bincount(own["label"], minlength=count)
        host += np.bincount(own["label"], own["dur"] * 1e-6, count)
        known = own["key"] != NO_KEY
        owned.add(own["key"][known], own["dur"][known], own["label"][known], their_layers[known])
    return calls, host
