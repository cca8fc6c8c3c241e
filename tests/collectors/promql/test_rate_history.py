"""The request rate of hours from a real Prometheus: of a recognised server, or by the user's own query."""

from __future__ import annotations

import pytest

from latdoctor.collectors.base import PrometheusServer
from latdoctor.collectors.promql import rate_history as module
from latdoctor.collectors.promql.client import prometheus_endpoint
from latdoctor.collectors.promql.rate_history import RateHistory, rate_history
from latdoctor.dialects.promql import parse_matchers
from latdoctor.errors import SourceError, UsageError
from tests.collectors.promql.history import BAD, END, HOUR


def asked(url: str, query: str = "", select: str = "") -> RateHistory:
    server = PrometheusServer(prometheus_endpoint(url), END - HOUR, END, HOUR, parse_matchers(select))
    return rate_history(server, query, 10.0)


def test_the_arrivals_of_all_replicas_of_a_recognised_server_are_added_up(real: str) -> None:
    found = asked(real)
    (series,) = found.series
    assert "vllm:request_success_total" in found.expression
    early = [value for time, value in zip(series.times, series.values, strict=True) if time < END - BAD - 120]
    assert early[10:] == pytest.approx([8.0] * len(early[10:]), rel=0.2)
    assert {later - earlier for earlier, later in zip(series.times, series.times[1:], strict=False)} == {60.0}


def test_a_selection_counts_only_its_replicas(real: str) -> None:
    (series,) = asked(real, select='{instance="b:8000"}').series
    assert series.values[20] == pytest.approx(4.0, rel=0.2)


def test_the_users_own_query_is_run_as_it_is(real: str) -> None:
    found = asked(real, query='sum by (instance) (rate(vllm:request_success_total{finished_reason="stop"}[2m]))')
    assert len(found.series) == 3
    assert found.series[0].values[20] == pytest.approx(4.0, rel=0.05)


def test_parts_of_a_long_time_are_joined_without_losing_a_point(real: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(real)
    monkeypatch.setattr(module, "_POINTS", 25)
    parts = asked(real)
    assert len(parts.series) == 3
    assert tuple(time for one in parts.series for time in one.times) == whole.series[0].times
    values = [value for one in parts.series for value in one.values]
    assert values == pytest.approx(list(whole.series[0].values))


def test_a_time_without_samples_is_an_error_and_not_a_rate_of_zero(real: str) -> None:
    with pytest.raises(SourceError, match="the query has no result"):
        asked(real, query="sum(rate(never_recorded_total[2m]))")
    with pytest.raises(UsageError, match="no request rate of a server that latdoctor knows"):
        asked(real, select='{job="dcgm"}')


def test_an_error_of_the_server_is_passed_on(real: str) -> None:
    with pytest.raises(SourceError, match="parse error"):
        asked(real, query="sum(rate(")


def test_rates_of_a_gateway_and_of_engines_are_not_added_up(real: str, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {"vLLM": "rate(vllm:request_success_total[$range])", "Envoy": "rate(envoy_requests_total[$range])"}
    monkeypatch.setattr(
        module.promql,
        "curve_queries",
        lambda dialect, signals, present: (
            [module.promql.SignalCurve("arrival.rate", curves[dialect.title], 1.0, frozenset())]
            if dialect.title in curves
            else []
        ),
    )
    with pytest.raises(UsageError, match="request rates of 2 kinds of servers") as refused:
        asked(real)
    assert len(refused.value.listed) == 2
    assert all("--query 'sum(rate(" in one for one in refused.value.listed)
