"""Which samples of a GPU are judged: all of them, or only the last where the GPU has become slower.

Clocks and shares are means. Over a text that begins before a fault a mean would clear what its last rows show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from latdoctor.collectors.nvml.readings import HW_POWER_BRAKE, HW_SLOWDOWN, HW_THERMAL, SW_POWER_CAP, SW_THERMAL
from latdoctor.collectors.nvml.samples import GpuSample, Number, Unavailable

_FEWEST = 6  # samples of which the last third says something
_SLOWER = 0.85  # clock at the end over that before, as a ratio
_MORE = 0.3  # share of the samples with cut clocks, at the end less before
_CUT = SW_POWER_CAP | HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE
_BUSY = 0.5  # utilization; an idle GPU lowers its clocks by design


def judged_samples(samples: Sequence[GpuSample]) -> Sequence[GpuSample]:
    """`samples` in their order, or the last third of them where the clocks are lower or cut more often while busy."""
    count = len(samples) // 3
    before, last = samples[:-count], samples[-count:]
    if len(samples) < _FEWEST or not _is_busy(last):
        return samples
    clock = _mean(last, lambda one: one.sm_clock) < _SLOWER * _mean(before, lambda one: one.sm_clock)
    cut = _mean(last, _is_cut) > _mean(before, _is_cut) + _MORE
    return last if clock or cut else samples


def _is_busy(samples: Sequence[GpuSample]) -> bool:
    return _mean(samples, lambda one: one.utilization) > _BUSY


def _is_cut(sample: GpuSample) -> Number:
    reasons = sample.clock_reasons
    return reasons if isinstance(reasons, Unavailable) else float(bool(reasons & _CUT))


def _mean(samples: Sequence[GpuSample], read: Callable[[GpuSample], Number]) -> float:
    """NaN where none has a value, with which every comparison fails."""
    known = [value for value in map(read, samples) if not isinstance(value, Unavailable)]
    return math.fsum(known) / len(known) if known else math.nan
