"""A server that answered and no longer does is down, since its last good scrape; a replaced replica is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from latdoctor.collectors.base import CollectRequest, PrometheusServer
from latdoctor.collectors.outage import ANSWERING, DOWN
from latdoctor.collectors.promql import COLLECTOR
from latdoctor.collectors.promql.client import prometheus_endpoint
from latdoctor.detectors import derive
from latdoctor.diagnosis.codes import AnswerKind, Level
from latdoctor.diagnosis.diagnose import Case, Stamp, diagnose
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.dialects.promql import parse_matchers
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Context
from latdoctor.evidence.model import Evidence, Window
from tests.collectors.prometheus.serving import FakeClock
from tests.collectors.promql.outages import END, EVERY, HOUR, SERVERS, Server, openmetrics
from tests.collectors.promql.real import prometheus

BY_NAME = {server.instance: server for server in SERVERS}


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("outages"), openmetrics()) as url:
        yield url


def seen(url: str, select: str = "", until: float = END, window: float = 300.0) -> Evidence:
    server = PrometheusServer(prometheus_endpoint(url), until - HOUR, until, window, parse_matchers(select))
    return COLLECTOR.parse(COLLECTOR.collect(CollectRequest(prometheus=server), FakeClock()).artifacts)


def test_each_server_that_went_away_is_down_since_its_last_answer(losing: str) -> None:
    evidence = seen(losing)
    since = {event.subject: event.time for event in evidence.events_by_signal[DOWN]}
    lost = [BY_NAME[name] for name in ("lost:8000", "fresh:8000", "last:8000")]
    assert since == {f"server/{one.instance}": one.answered for one in lost}
    assert all(event.fields["within"] == pytest.approx(EVERY, abs=1) for event in evidence.events_by_signal[DOWN])


def test_what_still_answers_or_was_replaced_is_not_down(losing: str) -> None:
    found = {one.subject: one.value for one in seen(losing).readings_by_signal[ANSWERING]}
    assert [found[f"server/{name}:8000"] for name in ("fine", "other", "new", "lost")] == [1, 1, 1, 0]
    assert "server/old:8000" not in found  # unknown: another replica took its place
    assert found.get("server/blink:8000") != 0


@pytest.mark.parametrize("job", ["single", "removed"])
def test_an_outage_alone_is_a_critical_answer_with_its_time(losing: str, job: str) -> None:
    evidence = derive(seen(losing, f'{{job="{job}"}}'))
    case = Case(Context("prometheus"), Window(END - 300, END), evidence, {})
    diagnosis = diagnose(case, shipped(), Stamp("run", ""))
    (server,) = (one for one in SERVERS if one.job == job)
    assert diagnosis.verdict.level is Level.CRITICAL
    assert diagnosis.since is not None
    assert (diagnosis.since.signal, diagnosis.since.time) == (DOWN, server.answered)
    assert diagnosis.answer.kind is not AnswerKind.NAMED  # whether it died or hangs is not known


def test_a_prometheus_that_scraped_nothing_any_more_proves_no_outage(tmp_path_factory: pytest.TempPathFactory) -> None:
    everything = (Server("a:8000", "one", gone=1500), Server("b:8000", "two", gone=1500))
    with prometheus(tmp_path_factory.mktemp("silent"), openmetrics(everything)) as url:
        collected = COLLECTOR.collect(
            CollectRequest(prometheus=PrometheusServer(prometheus_endpoint(url), END - HOUR, END, 300.0, ())),
            FakeClock(),
        )
        with pytest.raises(SourceError, match="no series of a known dialect"):
            COLLECTOR.parse(collected.artifacts)
