"""The performance summary of trtexec, of TensorRT 6 to 10. Pure; times in seconds, by title and statistic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LATENCY, END_TO_END, ENQUEUE, H2D, COMPUTE, D2H = (
    "Latency", "End-to-End Host Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency",
)  # fmt: skip
MEAN, MEDIAN, MIN, MAX, P90, P95, P99 = "mean", "median", "min", "max", "p90", "p95", "p99"
_TITLES = "|".join((END_TO_END, LATENCY, ENQUEUE, H2D, COMPUTE, D2H))
_LINE = re.compile(rf"(?:^|\] |\s)({_TITLES}): (.*?= [\d.]+ ms.*)$")
_FIGURE = re.compile(r"(?:(min|max|mean|median)|percentile\((\d{1,3}(?:\.\d+)?)%\)) = (\d+(?:\.\d+)?(?:e[-+]?\d+)?) ms")
_THROUGHPUT = re.compile(r"(?:^|\] |\s)[Tt]hroughput: (\d+(?:\.\d+)?(?:e[-+]?\d+)?) qps")
_WALL = re.compile(r"Total Host Walltime: (\d+(?:\.\d+)?) s|\bwalltime: (\d+(?:\.\d+)?) s")
_GPU_TIME = re.compile(r"Total GPU Compute Time: (\d+(?:\.\d+)?) s")
_UNSTABLE = re.compile(r"time is unstable, with coefficient of variance = (\d+(?:\.\d+)?)%")
_BOUND = re.compile(r"Throughput may be bound by (Enqueue Time|host-to-device transfers|device-to-host transfers)")
# TensorRT 6 and 7: a line for each statistic under the titles `Host latency` and `GPU Compute`.
_OLD_TITLE = re.compile(r"(?:^|\] |\s)(Host [Ll]atency|GPU Compute|Enqueue Time)\s*$")
_OLD_FIGURE = re.compile(r"(?:^|\] |\s)(min|max|mean|median|percentile): (\d+(?:\.\d+)?) ms(?:.*? at (\d{1,3})%)?")
_OLD_TITLES = {"host latency": LATENCY, "gpu compute": COMPUTE, "enqueue time": ENQUEUE}


@dataclass(slots=True)
class PerformanceSummary:
    """`figures[title][statistic]` in seconds; throughput in queries per second; None for what is not printed."""

    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    throughput: float | None = None
    wall_time: float | None = None
    gpu_time: float | None = None
    variation: float | None = None  # coefficient of variation of the GPU's time of a run
    bound_by: str = ""
    _title: str = ""

    def add_line(self, line: str) -> None:
        """Take in one line of a log; the last summary of several counts."""
        if found := _LINE.search(line):
            self.figures[found[1]] = dict(_figures(found[2]))
        elif found := _THROUGHPUT.search(line):
            self.throughput = float(found[1])
        elif found := _WALL.search(line):
            self.wall_time = float(found[1] or found[2])
        elif found := _GPU_TIME.search(line):
            self.gpu_time = float(found[1])
        elif found := _UNSTABLE.search(line):
            self.variation = float(found[1]) / 100
        elif found := _BOUND.search(line):
            self.bound_by = found[1]
        elif found := _OLD_TITLE.search(line):
            self._title = _OLD_TITLES[found[1].lower()]
        elif self._title and (found := _OLD_FIGURE.search(line)):
            name = found[1] if found[1] != "percentile" else f"p{found[3] or 99}"
            self.figures.setdefault(self._title, {})[name] = float(found[2]) / 1000

    def get(self, title: str, statistic: str) -> float | None:
        return self.figures.get(title, {}).get(statistic)


def _figures(text: str) -> Iterator[tuple[str, float]]:
    for name, percentile, number in _FIGURE.findall(text):
        yield name or f"p{percentile.removesuffix('.0')}", float(number) / 1000
