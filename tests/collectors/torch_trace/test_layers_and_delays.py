"""Layers and delays against what a person would work out one event after the other, whatever the windows are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.torch_trace import operator_layers
from latdoctor.collectors.torch_trace.disk_spill import NO_KEY, ROW
from latdoctor.collectors.torch_trace.event_store import COPY, KERNEL, MODULE, OPERATOR
from latdoctor.collectors.torch_trace.host_calls import DurationHistogram, LaunchDelaySweep
from latdoctor.collectors.torch_trace.operator_layers import LayerAssigner
from latdoctor.collectors.torch_trace.sweep import WindowRows
from latdoctor.evidence.model import Evidence
from tests.collectors.torch_trace.synthetic_traces import Json, call, event, evidence, kernel, readings, values


def of(name: str, ts: float, dur: float, link: int = -1, thread: int = 1) -> Json:
    return event("cpu_op", name, ts, dur, **{"External id": link}) | {"tid": thread}


def module(name: str, ts: float, dur: float, thread: int = 1) -> Json:
    return event("python_function", f"nn.Module: {name}", ts, dur) | {"tid": thread}


def ran(link: int, ts: float, dur: float) -> Json:
    return kernel(ts, dur, **{"External id": link})


def by_labels(found: Evidence, signal: str) -> dict[str, float]:
    return {
        " ".join(value for _, value in one.labels): float(one.value)
        for one in found.readings
        if one.signal == signal and one.labels
    }


NESTED = [
    module("Model_0", 0.0, 100.0),
    module("Linear_0", 10.0, 20.0),
    of("aten::linear", 10.0, 18.0),  # begins with its module
    of("aten::addmm", 12.0, 10.0, 5),
    module("Linear_1", 40.0, 20.0),
    of("aten::linear", 42.0, 15.0),
    of("aten::addmm", 43.0, 10.0, 6),
    of("aten::relu", 70.0, 5.0, 7),
    of("autograd::evaluate", 15.0, 50.0, thread=2),  # another thread, no module around it
    of("aten::mm", 20.0, 5.0, 8, thread=2),
    ran(5, 200.0, 40.0),
    ran(6, 240.0, 30.0),
    ran(7, 270.0, 20.0),
    ran(8, 290.0, 10.0),
]
LAYERS = {"Linear": 0.7, "Model": 0.2, "autograd::evaluate": 0.1}
PAIRS = {"Linear aten::addmm": 0.7, "Model aten::relu": 0.2, "autograd::evaluate aten::mm": 0.1}


@pytest.mark.parametrize("order", ["time", "reversed", "kernels first"])
def test_kernels_belong_to_the_innermost_module_else_to_the_outermost_operator(order: str) -> None:
    made = {"time": NESTED, "reversed": NESTED[::-1], "kernels first": NESTED[-4:] + NESTED[:-4]}[order]
    found = evidence(made)
    assert by_labels(found, "layer.gpu_share") == pytest.approx(LAYERS)
    assert by_labels(found, "layer.operator_share") == pytest.approx(PAIRS)


def test_very_many_names_are_added_up_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_layers, "_MOST_COUNTED", 0)
    assert by_labels(evidence(NESTED), "layer.operator_share") == pytest.approx(PAIRS)


def test_without_modules_the_layer_is_the_outermost_operator() -> None:
    found = evidence([one for one in NESTED if one["cat"] != "python_function"])
    assert by_labels(found, "layer.gpu_share") == pytest.approx(
        {"aten::linear": 0.7, "aten::relu": 0.2, "autograd::evaluate": 0.1}
    )


def test_little_is_not_listed() -> None:
    found = evidence([*NESTED, of("aten::fill_", 95.0, 1.0, 9), ran(9, 300.0, 0.5)])
    assert all("fill_" not in label for label in by_labels(found, "layer.operator_share"))


SPANS = st.recursive(
    st.just(()),
    lambda inner: st.lists(st.tuples(st.integers(0, 2), st.booleans(), inner), max_size=4).map(tuple),
    max_leaves=20,
)
Tree = tuple[tuple[int, bool, "Tree"], ...]


def laid_out(tree: Tree, clock: list[float], module: int, outer: int, rows: list[tuple[float, ...]]) -> None:
    """Writes (start, dur, label, place, expected layer) for each node; labels are numbers in order of writing."""
    for gap, is_module, inner in tree:
        clock[0] += gap
        start, index, label = clock[0], len(rows), 10 + len(rows)
        rows.append(())
        around = label if is_module else module
        first = outer or (0 if is_module else label)
        clock[0] += gap % 2  # what lies inside may begin at the same time
        laid_out(inner, clock, around, first, rows)
        clock[0] += 1
        place = MODULE if is_module else OPERATOR
        rows[index] = (start, clock[0] - start, label, place, module or outer or label)


@given(SPANS, st.sets(st.integers(1, 40), max_size=4), st.randoms(use_true_random=False))
def test_windows_and_the_order_of_the_file_change_no_layer(tree: Tree, edges: set[int], chance: object) -> None:
    written: list[tuple[float, ...]] = []
    laid_out(tree, [0.0], 0, 0, written)
    table = np.zeros(len(written), ROW)
    for column, index in (("start", 0), ("dur", 1), ("label", 2), ("place", 3)):
        table[column] = [row[index] for row in written]
    expected = {int(row[2]): int(row[4]) for row in written if row[3] == OPERATOR}
    chance.shuffle(order := list(range(len(written))))  # type: ignore[attr-defined]  # random.Random
    rows = table[order]
    rows = rows[np.argsort(rows["start"], kind="stable")]
    layers, found = LayerAssigner(), {}
    for low, high in pairwise([-np.inf, *sorted(edges), np.inf]):
        part = rows[(rows["start"] >= low) & (rows["start"] < high)]
        own = part["place"] & 1 == OPERATOR
        found.update(zip(part["label"][own].tolist(), layers.take(part, high)[own].tolist(), strict=True))
    assert found == expected


def test_a_kernel_that_waits_for_others_is_told_from_one_that_found_the_gpu_idle() -> None:
    made: list[Json] = []
    for at in range(20):
        base = 1000.0 * at
        # The first finds the GPU idle and begins 8 µs after its call did; the second waits for it.
        made += [call("cudaLaunchKernel", base, 5.0, correlation=2 * at), kernel(base + 8.0, 400.0, correlation=2 * at)]
        later = 2 * at + 1
        made += [call("cudaLaunchKernel", base + 10.0, 5.0, correlation=later)]
        made += [kernel(base + 410.0, 50.0, correlation=later)]
    found = evidence(made)
    seen = values(found)
    assert seen["launch.queued_share"] == pytest.approx(0.5)
    assert seen["launch.delay.median"] == pytest.approx(8e-6, rel=0.011)
    assert seen["launch.queue_wait.median"] == pytest.approx(400e-6, rel=0.011)
    assert "launch.delay.p99" not in seen  # of twenty
    assert "20 of 40 launches" in readings(found)["launch.delay.median"].origin.place


def test_of_a_graph_the_first_kernel_counts() -> None:
    made: list[Json] = []
    for at in range(12):
        made.append(call("cudaGraphLaunch", 1000.0 * at, 5.0, correlation=at))
        made += [kernel(1000.0 * at + 20.0 + 10.0 * of, 10.0, correlation=at) for of in range(5)]
    seen = values(evidence(made))
    assert seen["launch.queued_share"] == 0
    assert seen["launch.delay.median"] == pytest.approx(20e-6, rel=0.011)


@pytest.mark.parametrize("told", [None, "x", [1], -4, 10**400, 1.5, {"a": 1}])
def test_correlations_may_be_anything(told: object) -> None:
    made = [call("cudaLaunchKernel", at * 10.0, 1.0, correlation=told) for at in range(30)]
    made += [kernel(at * 10.0 + 2.0, 5.0, correlation=told) for at in range(30)]
    assert values(evidence(made))["trace.kernels"] == 30


WORK = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 25), st.booleans()), max_size=25)
CALLS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)), max_size=25, unique_by=lambda pair: pair[1])


def rows(table: list[tuple[int, int, int, int]]) -> WindowRows:
    """From (start, dur, key, place)."""
    start, dur, key, place = (np.array([row[at] for row in sorted(table)], float) for at in range(4))
    return WindowRows(start, start + dur, np.zeros(len(start), np.int32), place.astype(np.int32), key)


@given(WORK, CALLS, st.sets(st.integers(1, 60), max_size=4))
def test_windows_change_no_delay(
    work: list[tuple[int, int, int, bool]], calls: list[tuple[int, int]], edges: set[int]
) -> None:
    taken = rows([(start, dur, key, COPY if copy else KERNEL) for start, dur, key, copy in work])
    launches = rows([(start, 1, key or int(NO_KEY), 0) for start, key in calls])
    delays = LaunchDelaySweep()
    for low, high in pairwise([-np.inf, *sorted(edges), np.inf]):
        parts = [part.where((part.starts >= low) & (part.starts < high)) for part in (taken, launches)]
        delays.take(*parts)
    launched = {key: start for start, key in calls if key}
    idle = behind = 0
    busy_until = -np.inf
    for start, end, key, place in zip(taken.starts, taken.ends, taken.key, taken.place, strict=True):
        # A kernel is met with a launch of its own window or of one before it.
        at = launched.get(int(key))
        known = at is not None and not any(start < edge <= at for edge in edges)
        if place == KERNEL and known and at is not None:
            idle, behind = (idle + 1, behind) if busy_until <= at else (idle, behind + 1)
            del launched[int(key)]
        busy_until = max(busy_until, end)
    found = delays.found()
    assert (found.launches, found.idle) == (idle + behind, idle) if found else idle + behind == 0


@given(st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_quantiles_are_right_to_one_per_cent(durations: list[float], share: float) -> None:
    spread = DurationHistogram()
    for part in np.array_split(np.array(durations), 3):
        spread.take(part)
    expected = sorted(durations)[max(0, int(np.ceil(share * len(durations) - 1e-9)) - 1)]
    assert spread.quantile(share, 1) == pytest.approx(expected, rel=0.011)
    assert spread.quantile(share, len(durations) + 1) is None


def test_times_out_of_all_bounds_are_counted() -> None:
    spread = DurationHistogram()
    spread.take(np.array([-5.0, 0.0, 1e-300, 1e12]))
    assert spread.count == 4
    assert spread.quantile(0.5, 1) == 0.0
