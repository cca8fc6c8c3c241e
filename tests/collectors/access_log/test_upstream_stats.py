"""The one server behind a proxy that gets more than the others and is slower for it."""

from __future__ import annotations

import json

import pytest

from tests.collectors.access_log.test_request_logs import at, nginx, parsed

# Requests and seconds of each server behind the proxy; the ratios of the one that stands out.
CASES: dict[str, tuple[dict[str, tuple[int, float]], dict[str, float]]] = {
    "hot": (
        {"10.0.0.1:80": (90, 6.0), "10.0.0.2:80": (30, 0.6), "10.0.0.3:80": (30, 0.6)},
        {"replica.load_ratio": 3.0, "replica.latency_ratio": 10.0},
    ),
    "slow-at-an-equal-share": (
        {"10.0.0.1:80": (30, 6.0), "10.0.0.2:80": (30, 0.6), "10.0.0.3:80": (30, 0.6)},
        {},
    ),
    "busy-and-as-fast": ({"10.0.0.1:80": (90, 0.6), "10.0.0.2:80": (30, 0.6), "10.0.0.3:80": (30, 0.6)}, {}),
    "two-groups": (
        {"10.0.0.1:80": (90, 2.0), "10.0.0.2:80": (90, 2.0), "10.0.1.1:80": (25, 0.5), "10.0.1.2:80": (25, 0.5),
         "10.0.1.3:80": (25, 0.5)},
        {},
    ),
    "two-servers": ({"10.0.0.1:80": (90, 6.0), "10.0.0.2:80": (30, 0.6)}, {}),
    "too-few-requests": ({"10.0.0.1:80": (90, 6.0), "10.0.0.2:80": (30, 0.6), "10.0.0.3:80": (9, 0.6)}, {}),
}  # fmt: skip


def rows(servers: dict[str, tuple[int, float]]) -> list[tuple[str, float]]:
    return [(server, took) for server, (count, took) in servers.items() for _ in range(count)]


@pytest.mark.parametrize("form", ["ingress", "envoy"])
@pytest.mark.parametrize(("servers", "expected"), CASES.values(), ids=CASES)
def test_the_server_that_stands_out(
    servers: dict[str, tuple[int, float]], expected: dict[str, float], form: str
) -> None:
    if form == "ingress":
        lines = [nginx(number / 5, took, servers=server) for number, (server, took) in enumerate(rows(servers))]
    else:
        lines = [
            json.dumps({"start_time": at(number / 5), "method": "POST", "path": "/v1", "response_code": 200,
                        "response_flags": "-", "duration": took * 1000, "upstream_host": server})
            for number, (server, took) in enumerate(rows(servers))
        ]  # fmt: skip
    found = parsed(*lines)
    ratios = {one.signal: one.value for one in found.readings if one.subject.startswith("replica/")}
    assert ratios == pytest.approx(expected, rel=0.02)
    assert {one.subject for one in found.readings if one.subject.startswith("replica/")} <= {
        "replica/10.0.0.1:80@a.log"
    }
