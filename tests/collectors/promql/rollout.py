"""An hour and a half of a service in which a new model version came and was slow, as a Prometheus server keeps it.

Two replicas answer in 0.1 s. VERSION seconds before the end the first is started again with version v7 and answers in
0.9 s from SLOW seconds before the end on; a third replica leaves GONE seconds before the end. Samples come every 15 s.
"""

from __future__ import annotations

from collections.abc import Iterator

END = 1_795_000_000
FIRST, VERSION, SLOW, GONE, EVERY = 5400, 1260, 1140, 2400, 15
BOUNDS = (0.05, 0.2, 0.5, 1.0)


def openmetrics() -> str:
    return "\n".join([*_families(), "# EOF", ""])


def _times(until: int = 0) -> range:
    return range(END - FIRST, END - until + 1, EVERY)


def _target(name: str) -> str:
    return f'job="bot",instance="{name}:8002"'


def _families() -> Iterator[str]:
    yield "# TYPE up gauge"
    for name, until in (("a", 0), ("b", 0), ("c", GONE)):
        yield from (f"up{{{_target(name)}}} 1 {time}" for time in _times(until))
    yield "# TYPE process_start_time_seconds gauge"
    for name in "ab":
        for time in _times():
            started = END - VERSION - 5 if name == "a" and time >= END - VERSION else END - 500_000
            yield f"process_start_time_seconds{{{_target(name)}}} {started} {time}"
    yield "# TYPE gateway_build_info gauge"
    for time in _times():
        version = "2.1" if time >= END - 2700 else "2.0"
        yield f'gateway_build_info{{{_target("a")},version="{version}"}} 1 {time}'
    yield "# TYPE ref_info gauge"
    for name in "ab":
        for time in _times():
            version = "v7" if name == "a" and time >= END - VERSION else "v6"
            yield f'ref_info{{{_target(name)},replica="0",model_version="{version}",dtype="fp32",version="1"}} 1 {time}'
    yield "# TYPE ref_request_seconds histogram"
    for name in "ab":
        yield from _latencies(name)


def _latencies(name: str) -> Iterator[str]:
    quick = slow = 0
    rows: dict[str, list[str]] = {str(bound): [] for bound in (*BOUNDS, "+Inf", "sum", "count")}
    for time in _times():
        if name == "a" and time >= END - SLOW:
            slow += 8 * EVERY
        else:
            quick += 8 * EVERY
        labels = f'{_target(name)},replica="0"'
        for bound, lines in rows.items():
            if bound in ("sum", "count"):
                value = 0.1 * quick + 0.9 * slow if bound == "sum" else quick + slow
                lines.append(f"ref_request_seconds_{bound}{{{labels}}} {value:.9g} {time}")
            else:
                seen = (quick if float(bound) >= 0.1 else 0) + (slow if float(bound) >= 0.9 else 0)
                lines.append(f'ref_request_seconds_bucket{{{labels},le="{bound}"}} {seen} {time}')
    for lines in rows.values():
        yield from lines
