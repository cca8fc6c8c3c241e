"""One look: collectors read side by side, and one that fails or hangs never stops the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from latdoctor.collectors.base import Clock, Collector, CollectRequest, CollectResult, SourceReader
from latdoctor.collectors.runner import collect_bundle, parse_bundle
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Window
from latdoctor.gap_code import GapCode


class FrozenClock:
    def now(self) -> float:
        return 1000.0

    def sleep(self, seconds: float) -> None: ...


def _artifact(name: str, group: str = "0", collector: str = "fake", at: float = 1000.0) -> Artifact:
    return Artifact(name, collector, group, f"source of {name}", at, b"7")


def _parse(artifacts: Sequence[Artifact]) -> Evidence:
    content = float(artifacts[0].read())
    return Evidence(readings=(Reading("queue.depth", "server/a", content, Origin(artifacts[0].name)),))


def _collector(
    name: str = "fake",
    *,
    is_requested: Callable[[CollectRequest], bool] = lambda request: True,
    collect: Callable[[CollectRequest, Clock], CollectResult] | None = None,
    parse: Callable[[Sequence[Artifact]], Evidence] = _parse,
) -> Collector:
    bring = collect or (lambda request, clock: CollectResult((_artifact("a", collector=name),)))
    return Collector(
        name=name,
        title=f"the {name} source",
        signals=lambda: frozenset({"queue.depth"}),
        is_requested=is_requested,
        reader=lambda: SourceReader(bring, parse, lambda: ()),
        option="--fake",
        cost="nothing",
    )


REQUEST = CollectRequest(window=0.0, timeout=0.05)


def test_what_collectors_bring_becomes_one_bundle() -> None:
    collectors = [_collector("one"), _collector("two")]
    bundle = collect_bundle(collectors, REQUEST, Context("t"), FrozenClock())
    assert [artifact.collector for artifact in bundle.artifacts] == ["one", "two"]
    assert bundle.window == Window(1000.0, 1000.0)
    evidence, coverage = parse_bundle(collectors, bundle)
    assert len(evidence.readings) == 2
    assert [row.status for row in coverage] == ["read", "read"]


def test_a_collector_that_is_not_requested_does_not_run() -> None:
    def never(request: CollectRequest, clock: Clock) -> CollectResult:
        raise AssertionError("must not be called")

    silent = _collector("silent", is_requested=lambda request: False, collect=never)
    bundle = collect_bundle([silent], REQUEST, Context("t"), FrozenClock())
    _, coverage = parse_bundle([silent], bundle)
    assert bundle.artifacts == ()
    assert coverage[0].status == "not-asked"


def test_a_collector_that_hangs_becomes_a_gap_and_the_rest_goes_on() -> None:
    released = threading.Event()

    def hang(request: CollectRequest, clock: Clock) -> CollectResult:
        released.wait(30)
        return CollectResult()

    waited: list[Sequence[str]] = []
    collectors = [_collector("hanging", collect=hang), _collector("quick")]
    bundle = collect_bundle(collectors, REQUEST, Context("t"), FrozenClock(), waiting=waited.append)
    released.set()
    assert [artifact.collector for artifact in bundle.artifacts] == ["quick"]
    assert [(gap.source, gap.signals) for gap in bundle.gaps] == [("hanging", ("queue.depth",))]
    assert "did not answer" in bundle.gaps[0].reason
    assert ["the hanging source"] in waited


def test_a_bug_in_a_collector_is_not_swallowed() -> None:
    def broken(request: CollectRequest, clock: Clock) -> CollectResult:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        collect_bundle([_collector(collect=broken)], REQUEST, Context("t"), FrozenClock())


def test_a_group_that_makes_no_sense_is_a_gap_and_the_other_groups_are_read() -> None:
    def parse(artifacts: Sequence[Artifact]) -> Evidence:
        if artifacts[0].name == "bad":
            raise SourceError("makes no sense", next_step="look at it")
        return _parse(artifacts)

    collector = _collector(parse=parse)
    bundle = Bundle(Context("t"), Window(), (_artifact("bad", "0"), _artifact("good", "1")))
    evidence, coverage = parse_bundle([collector], bundle)
    assert [reading.origin.artifact for reading in evidence.readings] == ["good"]
    gap = evidence.gaps[0]
    assert gap == Gap(
        "fake",
        "source of bad: makes no sense",
        ("queue.depth",),
        next_step="look at it",
        origin=Origin("bad"),
        code=GapCode.UNREADABLE,
    )
    assert coverage[0].status == "partly"


def test_artifacts_of_one_group_are_parsed_together_whatever_their_order() -> None:
    seen: list[tuple[str, ...]] = []

    def parse(artifacts: Sequence[Artifact]) -> Evidence:
        seen.append(tuple(artifact.name for artifact in artifacts))
        return Evidence()

    mixed = (_artifact("a", "1"), _artifact("b", "0"), _artifact("c", "1"))
    parse_bundle([_collector(parse=parse)], Bundle(Context("t"), Window(), mixed))
    assert seen == [("b",), ("a", "c")]


def test_the_others_stop_early_if_the_leader_reads_nothing() -> None:
    released = threading.Event()

    def sample(request: CollectRequest, clock: Clock) -> CollectResult:
        released.wait(30)
        return CollectResult()

    gap = Gap("servers", "cannot be reached")
    collectors = [
        _collector("servers", collect=lambda request, clock: CollectResult(gaps=(gap,))),
        _collector("machine", collect=sample),
    ]
    started = time.monotonic()
    bundle = collect_bundle(collectors, CollectRequest(window=20.0, leader="servers"), Context("t"), FrozenClock())
    released.set()
    assert time.monotonic() - started < 5
    assert [one.reason for one in bundle.gaps] == [
        "cannot be reached",
        "the machine source was stopped, as no server answered",
    ]
