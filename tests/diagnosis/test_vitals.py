"""The key numbers of what was measured: the worst subject of each, and no request counted twice."""

from __future__ import annotations

from latdoctor.diagnosis.result import Vital
from latdoctor.diagnosis.vitals import vitals
from latdoctor.evidence.model import Evidence, Origin, Reading


def at(signal: str, value: float, subject: str, **labels: str) -> Reading:
    return Reading(signal, subject, value, Origin("page.prom"), labels=tuple(labels.items()))


def of(signal: str, *readings: Reading) -> list[Vital]:
    return [one for one in vitals(Evidence(readings=readings)) if one.signal == signal]


def test_the_worst_subject_is_shown() -> None:
    (p99,) = of("latency.p99", at("latency.p99", 0.2, "replica/0"), at("latency.p99", 0.9, "replica/1"))
    assert (p99.subject, p99.value, p99.shown) == ("replica/1", 0.9, "900 ms")
    (busy,) = of("gpu.busy_ratio", at("gpu.busy_ratio", 0.9, "trace/a"), at("gpu.busy_ratio", 0.1, "trace/b"))
    assert busy.subject == "trace/b"


def test_rates_of_several_models_are_added_up() -> None:
    (rate,) = of("arrival.rate", at("arrival.rate", 10.0, "model/a"), at("arrival.rate", 20.0, "model/b"))
    assert (rate.subject, rate.value) == ("model", 30.0)


def test_a_router_beside_its_replicas_counts_no_request_twice() -> None:
    replicas = (at("arrival.rate", 10.0, "replica/0"), at("arrival.rate", 20.0, "replica/1"))
    (rate,) = of("arrival.rate", *replicas, at("arrival.rate", 30.0, "router/a"))
    assert rate.value == 30.0


def test_the_newest_reading_of_a_subject_counts() -> None:
    (depth,) = of("queue.depth", at("queue.depth", 300.0, "replica/0"), at("queue.depth", 2.0, "replica/0"))
    assert depth.value == 2.0


def test_unknown_values_are_no_vital_signs() -> None:
    assert vitals(Evidence(readings=(at("latency.p99", float("nan"), "replica/0"),))) == ()


def test_the_largest_parts_are_named_by_their_label() -> None:
    shares = [at("kernel.kind_share", share, "trace/a", kind=kind) for kind, share in SHARES.items()]
    assert [one.part for one in of("kernel.kind_share", *shares)] == ["matrix product", "softmax", "copy"]


SHARES = {"copy": 0.1, "softmax": 0.2, "other": 0.001, "matrix product": 0.6, "reduction": 0.05}


def test_a_log_that_was_searched_says_how_many_it_found() -> None:
    found = vitals(Evidence(looked=(("log.xid", "node/a"), ("change.model", "node/a"))))
    assert [(one.signal, one.value) for one in found] == [("log.xid", 0.0)]
