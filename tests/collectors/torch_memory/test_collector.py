"""Snapshots and statistics: what lies in holes, what was retried, and what one file alone cannot tell."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.torch_memory import COLLECTOR
from latdoctor.collectors.torch_memory import snapshot as snapshots
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from tests.cli.running import checks, diagnosed, named
from tests.collectors.seen import hidden, readings, values

MIB = 1 << 20
SAMPLE = "torch_memory/medium_128_inference.memory_snapshot.pickle"
GIVEN, FREE, PENDING = "active_allocated", "inactive", "active_pending_free"


class Clock:
    def now(self) -> float:
        return 1.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing is waited for")


def segment(*blocks: tuple[str, int], device: int = 0, pool: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    """Blocks of a state and a size in MiB."""
    return {
        "device": device,
        "address": 1 << 40,
        "total_size": sum(size for _, size in blocks) * MIB,
        "segment_pool_id": pool,
        "blocks": [{"state": state, "size": size * MIB, "address": 0} for state, size in blocks],
    }


def entries(*actions: str, every: int = 1000, size: int = MIB) -> list[dict[str, Any]]:
    return [{"action": action, "time_us": number * every, "size": size} for number, action in enumerate(actions)]


def taken(*segments: dict[str, Any], history: object = None) -> bytes:
    return pickle.dumps({"segments": list(segments), "device_traces": [history or []], "allocator_settings": {}})


def stats(**changed: float) -> bytes:
    told = {
        "reserved_bytes.all.current": 1000 * MIB, "allocated_bytes.all.current": 500 * MIB,
        "active_bytes.all.current": 520 * MIB, "inactive_split_bytes.all.current": 450 * MIB,
        "segment.all.current": 40, "num_alloc_retries": 0, "num_ooms": 0, "num_device_alloc": 50,
        "allocation.all.allocated": 10_000,
    }  # fmt: skip
    return json.dumps({**told, **changed}).encode()


def parsed(*contents: bytes | Path) -> Evidence:
    made = [Artifact(f"torch_memory/a-{n}", "torch_memory", "a", f"a-{n}", 1.0, one) for n, one in enumerate(contents)]
    return COLLECTOR.parse(made)


def test_a_sound_model(samples: Path) -> None:
    found = parsed(samples / SAMPLE)
    seen = values(found)
    assert round(seen["alloc.reserved"] / MIB) == 1682
    assert round(seen["alloc.allocated"] / MIB) == 1624
    assert seen["alloc.inactive_split_ratio"] * seen["alloc.reserved"] == pytest.approx(13.6 * MIB, rel=0.01)
    assert seen["alloc.largest_hole"] == 20 * MIB
    assert "1280 allocations" in readings(found)["alloc.history_span"].origin.place
    assert seen["alloc.history_segments"] == seen["alloc.history_segment_rate"] == 0
    assert {"alloc.retries", "alloc.retries_grown"} <= hidden(found)
    document = diagnosed("--torch-memory", str(samples / SAMPLE))
    assert checks(document, "fired") == {}
    assert named(document) == []


def test_holes_are_free_parts_of_segments_in_use() -> None:
    """A segment that is free as a whole can be given back: it is no hole."""
    found = values(parsed(taken(segment((GIVEN, 4), (FREE, 6), (GIVEN, 1), (FREE, 9)), segment((FREE, 20)))))
    assert found["alloc.inactive_split_ratio"] == 15 / 40
    assert found["alloc.inactive_ratio"] == 35 / 40
    assert found["alloc.fragmentation"] == 1 - 20 / 35


def test_a_block_that_waits_for_its_stream_is_not_free() -> None:
    found = values(parsed(taken(segment((PENDING, 4), (GIVEN, 4), ("active_awaiting_free", 2)))))
    assert found["alloc.inactive_ratio"] == found["alloc.fragmentation"] == 0
    assert found["alloc.allocated"] == 4 * MIB


def test_failures_for_less_than_lies_free_are_told_apart() -> None:
    history = entries("alloc", "oom", "alloc", "oom", size=30 * MIB) + entries("oom", size=500 * MIB)
    found = values(parsed(taken(segment((GIVEN, 4), (FREE, 40)), history=history)))
    assert found["alloc.history_ooms"] == 3
    assert found["alloc.ooms_despite_room"] == 2


def test_segments_count_in_the_later_half_only() -> None:
    warm = ["segment_alloc"] * 50 + ["alloc"] * 50
    found = values(parsed(taken(segment((GIVEN, 4)), history=entries(*warm))))
    assert found["alloc.history_segments"] == 0
    storm = ["alloc", "segment_alloc"] * 100
    found = values(parsed(taken(segment((GIVEN, 4)), history=entries(*storm))))
    assert found["alloc.history_segments"] == 50
    assert found["alloc.history_segment_rate"] == pytest.approx(500, rel=0.02)


def test_devices_are_kept_apart() -> None:
    found = parsed(taken(segment((GIVEN, 4)), segment((FREE, 4), device=1)))
    ratios = {r.subject: r.value for r in found.readings if r.signal == "alloc.inactive_ratio"}
    assert ratios == {"allocator/a:0": 0, "allocator/a:1": 1}


def test_statistics_flat_and_nested() -> None:
    flat = values(parsed(stats(num_alloc_retries=7)))
    assert flat["alloc.retries"] == 7
    assert flat["alloc.inactive_split_ratio"] == 0.45
    assert flat["alloc.inactive_ratio"] == pytest.approx(0.48)
    nested = {"reserved_bytes": {"all": {"current": 100}}, "active_bytes": {"all": {"current": 75}}, "num_ooms": 1}
    assert values(parsed(json.dumps(nested).encode()))["alloc.inactive_ratio"] == 0.25


def test_two_states_tell_growth_in_whatever_order_they_come() -> None:
    first = stats(num_alloc_retries=5)
    last = stats(**{"num_alloc_retries": 9, "num_device_alloc": 90, "allocation.all.allocated": 30_000})
    for given_as in ((first, last), (last, first)):
        seen = values(parsed(*given_as))
        assert seen["alloc.retries_grown"] == 4
        assert seen["alloc.device_calls_grown"] == 40
        assert seen["alloc.grown_allocations"] == 20_000
    assert "alloc.retries_grown" in hidden(parsed(first))


def test_fragmentation_is_named_from_both_files_together(tmp_path: Path) -> None:
    shattered = segment(*[(GIVEN, 1), (FREE, 1)] * 200)
    (tmp_path / "server.snapshot.pickle").write_bytes(taken(shattered))
    told = {"num_alloc_retries": 240, "inactive_split_bytes.all.current": 480 * MIB}
    (tmp_path / "server.memory_stats.json").write_bytes(stats(**told))
    document = diagnosed("--torch-memory", str(tmp_path))
    assert named(document) == ["framework.alloc.fragmentation"]
    alone = diagnosed("--torch-memory", str(tmp_path / "server.snapshot.pickle"))
    assert named(alone) == [], "a snapshot counts no retries"


def test_files_of_one_process_are_read_together(tmp_path: Path) -> None:
    for name in ("server.snapshot.pickle", "server.stats-1.json", "server_memory_stats_2.json", "other.pickle"):
        (tmp_path / name).write_bytes(stats())
    found = COLLECTOR.collect(CollectRequest(torch_memory=(tmp_path, tmp_path / "none")), Clock())
    assert sorted(one.group for one in found.artifacts) == ["other", "server", "server", "server"]
    assert len({one.name for one in found.artifacts}) == 4
    assert len(found.gaps) == 1


def test_a_file_that_cannot_be_read_hides_no_other() -> None:
    found = parsed(stats(), b"\x80\x04cos\nsystem\n.")
    assert values(found)["alloc.retries"] == 0
    assert any("would call or make an object" in gap.reason for gap in found.gaps)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"{}", b"[1, 2]", b"[" * 100_000, b'{"a":' * 50_000, b'{"reserved_bytes.all.current": "x"}',
        b"\x80\x04N.", pickle.dumps({"segments": 3}), pickle.dumps([1, 2, "x"] * 3) + b"x", pickle.dumps({"a": 1}),
    ],
)  # fmt: skip
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(SourceError) as caught:
        parsed(content)
    assert caught.value.next_step


def test_one_thing_a_million_times_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle may name one list of blocks from every segment: small to store, endless to walk."""
    monkeypatch.setattr(snapshots, "MAX_BLOCKS", 1000)
    one = segment(*[(GIVEN, 1)] * 100)
    with pytest.raises(SourceError, match="more than the 1000 blocks"):
        parsed(taken(*[one] * 50))


def test_a_snapshot_that_holds_itself_ends() -> None:
    segments: list[Any] = []
    looped: dict[str, Any] = {"segments": segments, "device_traces": [segments]}
    segments += [looped, segments, {"total_size": 5, "blocks": segments}]
    found = parsed(pickle.dumps(looped))
    assert any("damaged" in gap.reason for gap in found.gaps)


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 1 << 64)
    | st.floats()
    | st.sampled_from([GIVEN, FREE, "oom", "alloc", ""]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["segments", "blocks", "total_size", "size", "state", "device", "device_traces", "action"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@given(junk, junk)
@example([], [[{"action": []}]])
def test_any_snapshot_gives_a_result_or_an_error(segments: object, traces: object) -> None:
    try:
        parsed(pickle.dumps({"segments": segments, "device_traces": traces}))
    except SourceError:
        return


@given(junk)
def test_any_json_gives_a_result_or_an_error(value: object) -> None:
    told = json.dumps({"num_alloc_retries": 1, "reserved_bytes": value}).encode()
    try:
        parsed(told)
    except SourceError:
        return


def storm_after_failure() -> bytes:
    """A failure with 30 of 40 MiB unused; afterwards all was freed, and segments were taken anew."""
    held = [
        {"action": "segment_alloc", "size": 40 * MIB, "time_us": 0},
        {"action": "alloc", "size": 10 * MIB, "time_us": 1},
    ]
    failed = {"action": "oom", "size": 28 * MIB, "device_free": 2 * MIB, "time_us": 1_000_000}
    freed = [
        {"action": action, "size": 10 * MIB, "time_us": 1_000_100} for action in ("free_requested", "free_completed")
    ]
    gone = {"action": "segment_free", "size": 40 * MIB, "time_us": 1_000_200}
    anew = [{"action": "segment_alloc", "size": MIB, "time_us": 1_500_000 + at} for at in range(100)]
    back = [{"action": "alloc", "size": MIB, "time_us": 1_600_000 + at} for at in range(100)]
    return taken(*[segment((GIVEN, 1)) for _ in range(100)], history=[*held, failed, *freed, gone, *anew, *back])


def test_the_state_of_the_failure_counts_not_that_of_the_snapshot() -> None:
    found = parsed(storm_after_failure())
    seen = values(found)
    assert (seen["alloc.reserved"], seen["alloc.allocated"]) == (40 * MIB, 10 * MIB)
    assert seen["alloc.inactive_ratio"] == 0.75
    assert {"alloc.inactive_split_ratio", "alloc.fragmentation"} <= hidden(found)
    assert seen["alloc.ooms_despite_room"] == 1
    assert (seen["oom.requested"], seen["oom.device_free"]) == (28 * MIB, 2 * MIB)
    assert seen["oom.reserved_unallocated"] == 30 * MIB
    assert seen["oom.room_ratio"] == pytest.approx(32 / 28)
    assert seen["alloc.history_segments"] == 0  # those after the failure fill the cache that it emptied


def test_expandable_segments_that_grow_are_no_new_segments() -> None:
    grown = entries(*["alloc", "segment_map", "segment_unmap"] * 100)
    found = values(parsed(taken(segment((GIVEN, 4)), history=grown)))
    assert found["alloc.history_segments"] == found["alloc.history_segment_rate"] == 0


@pytest.mark.parametrize("form", [lambda one, two: [one, two], lambda one, two: {"cuda:0": one, "cuda:1": two}])
def test_statistics_of_several_devices_are_each_judged(form: Any) -> None:
    one, two = json.loads(stats()), json.loads(stats(num_ooms=7))
    found = parsed(json.dumps(form(one, two)).encode())
    assert {r.subject: r.value for r in found.readings if r.signal == "alloc.ooms"} == {
        "allocator/a:0": 0,
        "allocator/a:1": 7,
    }
