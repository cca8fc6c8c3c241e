"""Two hours of two vLLM replicas: one is healthy, the other falls behind `BEGAN` seconds before the end.

From then on its requests take the longer the later they arrive, as where more arrive than it can finish; its P99
climbs to the end. Before, both wander as a service at half of its capacity does. Samples come every 15 s.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

END, SPAN, BEGAN, EVERY = 1_795_200_000, 7200, 2400, 15
BOUNDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 240.0, 480.0, 960.0)
RATE = 1.7  # requests a second
CLIMB = 0.4  # seconds that each second of the overload adds
HEALTHY, BEHIND = "healthy:8000", "behind:8000"


def openmetrics() -> str:
    """In the format that `promtool tsdb create-blocks-from openmetrics` reads."""
    lines: dict[str, list[str]] = {"up": [], "waiting": [], "latency": []}
    for place, seed in ((HEALTHY, 3), (BEHIND, 4)):
        for name, line in _replica(place, np.random.default_rng(seed)):
            lines[name].append(line)
    return "\n".join(
        [
            "# TYPE up gauge",
            *lines["up"],
            "# TYPE vllm:num_requests_waiting gauge",
            *lines["waiting"],
            "# TYPE vllm:e2e_request_latency_seconds histogram",
            *lines["latency"],
            "# EOF",
            "",
        ]
    )


def _replica(place: str, random: np.random.Generator) -> Iterator[tuple[str, str]]:
    target = f'job="vllm",instance="{place}"'
    labels = f'{target},model_name="org/chat",engine="0"'
    family = "vllm:e2e_request_latency_seconds"
    counts, total = np.zeros(len(BOUNDS) + 1), 0.0
    for time in range(END - SPAN, END + 1, EVERY):
        behind = max(0, time - (END - BEGAN)) if place == BEHIND else 0
        took = random.lognormal(1.4, 0.6, random.poisson(RATE * EVERY)) + CLIMB * behind
        total += float(took.sum())
        counts += np.histogram(took, (0.0, *BOUNDS, np.inf))[0]
        yield "up", f"up{{{target}}} 1 {time}"
        yield "waiting", f"vllm:num_requests_waiting{{{labels}}} {behind / 2:.0f} {time}"
        for bound, count in zip((*BOUNDS, "+Inf"), counts.cumsum(), strict=True):
            yield "latency", f'{family}_bucket{{{labels},le="{bound}"}} {count:.0f} {time}'
        yield "latency", f"{family}_count{{{labels}}} {counts.sum():.0f} {time}"
        yield "latency", f"{family}_sum{{{labels}}} {total:.3f} {time}"
