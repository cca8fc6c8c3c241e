"""Texts of kubectl: subjects stay apart, nothing counts as searched, damage is a gap, and the key facts are printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.collectors.documents.kubernetes.columns import heading, row
from latdoctor.collectors.documents.kubernetes.quantities import age, moment, occurrence
from latdoctor.collectors.documents.reader import parse
from latdoctor.collectors.file_kinds import FileKind, recognise
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.evidence.redaction.redactor import Redactor
from latdoctor.kubernetes_quantity import quantity
from tests.cli.running import run

CASES = [
    path
    for folder in (
        "docker-inspect",
        "docker-ps",
        "kubectl-describe",
        "kubectl-get",
        "kubectl-get-events",
        "kubernetes-json",
        "kubernetes-yaml",
    )
    for path in sorted((Path(__file__).parent / "cases" / folder).glob("*.txt"))
]
TABLE = "NAME      READY   STATUS             RESTARTS   AGE\nvllm-0    0/1     CrashLoopBackOff   9          2h\n"


def read(text: bytes, name: str = "a.txt") -> Evidence:
    return parse([Artifact(f"documents/{name}", "documents", name, name, 1_770_000_000.0, text)])


def printed(folder: Path, *texts: str, options: Sequence[str] = ()) -> str:
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"{number}.txt")
        files[-1].write_text(text)
    return run(["diagnose", *map(str, files), *options]).out


@pytest.mark.parametrize(
    ("text", "value"),
    [("500Mi", 500 * 2**20), ("1500m", 1.5), ("2", 2), ("1e3", 1000), ("128M", 128e6), ("3Ti", 3 * 2**40), ("2k", 2000),
     ("1E", 1e18), ("250u", 250e-6), ("<none>", None), ("", None), ("1Gb", None), ("1e99", 1e99), ("nan", None)],
)  # fmt: skip
def test_quantities(text: str, value: float | None) -> None:
    assert quantity(text) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3d4h", 273600), ("12m", 720), ("3m12s", 192), ("2y45d", 66960000), ("<unknown>", None), ("", None), ("5", None)],
)
def test_ages(text: str, seconds: float | None) -> None:
    assert age(text) == seconds


def test_an_age_with_repetitions() -> None:
    found = occurrence("4m2s (x61 over 18m)")
    assert (found.last, found.first, found.count) == (242, 1080, 61)


@pytest.mark.parametrize("text", ["Sun, 01 Feb 2026 22:41:30 +0000", "2026-02-01T22:41:30Z", "2026-02-01T22:41:30.0Z"])
def test_absolute_times(text: str) -> None:
    assert moment(text) == 1769985690.0


@pytest.mark.parametrize("text", ["", "<none>", "Sun, 99 Feb 2026", "x" * 90, "12"])
def test_what_is_no_time(text: str) -> None:
    assert moment(text) is None


@pytest.mark.parametrize(
    "line",
    [
        "vllm-0    0/1     Running   5 (2m ago)   3h    10.0.0.7",
        "vllm-0 0/1 Running 5 (2m ago) 3h 10.0.0.7",
        "vllm-0\t0/1\tRunning\t5 (2m ago)\t3h\t10.0.0.7",
        "vllm-0   0/1   Running   5 (2m ago)   3h   ip-11223344",
    ],
)
def test_cells_of_any_width(line: str) -> None:
    cells = row(line, heading("NAME      READY   STATUS    RESTARTS     AGE   IP"))
    assert (cells["name"], cells["ready"], cells["restarts"], cells["age"]) == ("vllm-0", "0/1", "5 (2m ago)", "3h")


def test_an_empty_cell_is_found_by_the_heading() -> None:
    head = heading("TYPE      REASON    OBJECT   SUBOBJECT   MESSAGE")
    assert row("Warning   BackOff   pod/a                again and again", head)["message"] == "again and again"


def test_equal_names_in_two_files_are_two_pods() -> None:
    """Two clusters, or two namespaces whose column is not shown."""
    one, two = read(TABLE.encode(), "east.txt"), read(TABLE.encode(), "west.txt")
    subjects = {one.subject for one in Evidence.merge([one, two]).readings if one.signal == "pod.restarts"}
    assert subjects == {"pod/vllm-0@east.txt", "pod/vllm-0@west.txt"}


def test_the_parents_are_the_pod_and_its_node() -> None:
    path = next(one for one in CASES if one.stem == "pod-oom")
    found = read(path.read_bytes(), path.name)
    container = "container/search/reranker-5d7f9c6b44-h2m8v/model@pod-oom.txt"
    assert found.lineage(container)[1:] == (
        "pod/search/reranker-5d7f9c6b44-h2m8v@pod-oom.txt",
        "node/h100-c@pod-oom.txt",
    )


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        "No resources found in serving namespace.\n" + TABLE,
        TABLE + '\nError from server (NotFound): pods "vllm-9" not found\n',
        "Name:         vllm-0\nNamespace:    a\nNode:         n/10.0.0.1\nStatus:       Running\nConditions:\n"
        "  Type    Status\n  Ready   True\nEvents:          <none>\n",
    ],
)
def test_kubectl_text_clears_nothing_that_it_did_not_show(text: str, tmp_path: Path) -> None:
    assert read(text.encode()).looked == ()
    shown = json.loads(run(["diagnose", *_file(tmp_path, text), "-o", "json"]).out)
    # That its pods run is in the text.
    assert {name for tier in shown["tiers"] for name in tier["clear"]} <= {"pods-pending"}


def _file(folder: Path, text: str) -> list[str]:
    path = folder / "kube.txt"
    path.write_text(text)
    return [str(path)]


def test_the_key_facts_are_printed(tmp_path: Path) -> None:
    shown = printed(tmp_path, TABLE + "vllm-1    1/1     Running            1          2h\n")
    assert "1 of 2 pods ready · 10 restarts" in shown


def test_an_autoscaler_at_its_maximum_is_printed(tmp_path: Path) -> None:
    shown = printed(
        tmp_path,
        "NAME   REFERENCE       TARGETS   MINPODS   MAXPODS   REPLICAS   AGE\n"
        "llm    Deployment/llm  41/5      2         6         6          3d\n",
    )
    assert "autoscaler at 6 of 6 replicas · its metric at 8.2 times the target" in shown


def test_a_limit_and_an_end_for_memory_are_printed(tmp_path: Path) -> None:
    path = next(one for one in CASES if one.stem == "pod-oom")
    shown = printed(tmp_path, path.read_text().partition("\n\n")[0])
    assert "killed for memory (OOMKilled): model in reranker-5d7f9c6b44-h2m8v" in " ".join(shown.split())
    assert "memory limit 91.6 MiB" in shown


def test_a_heading_without_rows_is_a_gap() -> None:
    found = read(TABLE.splitlines()[0].encode())
    assert [gap.code for gap in found.gaps] == ["unreadable"]


@settings(deadline=None, max_examples=150)
@given(path=st.sampled_from(CASES), data=st.data())
def test_damaged_text_ends_in_evidence_or_an_error(path: Path, data: st.DataObject) -> None:
    raw = path.read_bytes()
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, max(0, len(raw) - 1)))
        piece = data.draw(st.sampled_from([b"", b"\x00", b"\n", b" ", b"\xff", b"9" * 400, b"{", b"null", b": "]))
        raw = raw[:place] + piece + raw[place + data.draw(st.integers(0, 40)) :]
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        found = read(raw, path.name)
    except SourceError:
        return
    assert found.looked == ()
    assert all(isinstance(one.value, str) or one.value == one.value for one in found.readings)


@pytest.mark.parametrize(
    "text",
    [
        "NAME   READY   STATUS    RESTARTS   AGE\n" + "a" * 100_000 + "\n" + "b 1/1 Running 0 1d " * 50_000,
        '{"apiVersion": "v1", "kind": "List", "items": ' + "[" * 50_000,
        'apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n  metadata: ' + "{a: " * 20_000,
        "apiVersion: v1\nkind: Pod\na: &x [1]\nb: [*x, *x]\n",
        "Name: a\nNamespace: b\n" + "  Warning  A  1s  b  c\n" * 60_000,
        "LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n1m   Warning   BackOff   pod/a" + " " * 3000 + "x\n" * 30_000,
    ],
    ids=["wide", "deep-json", "deep-yaml", "aliases", "many-events", "many-rows"],
)  # fmt: skip
def test_hostile_text_is_bounded(text: str) -> None:
    try:
        read(text.encode())
    except SourceError:
        return


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_redacted_text_shows_the_same(path: Path) -> None:
    """Bundles are redacted before they are read, which changes addresses, ids and the widths of columns."""
    plain, hidden = (read(raw, path.name) for raw in (path.read_bytes(), Redactor(b"key").content(path.read_bytes())))
    assert [(one.signal, one.subject, one.value, one.labels) for one in hidden.readings] == [
        (one.signal, one.subject, one.value, one.labels) for one in plain.readings
    ]
    assert [(one.signal, one.subject, one.time, one.fields) for one in hidden.events] == [
        (one.signal, one.subject, one.time, one.fields) for one in plain.events
    ]


@pytest.mark.parametrize(
    "text",
    [
        TABLE + "\nTraceback (last call):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "State:      Terminated\nReason:     Error\n"
        "Message:    RuntimeError: CUDA error: device-side assert triggered\nExit Code:  1\n",
    ],
    ids=["after a table", "last words of a container"],
)
def test_failures_between_the_lines_are_read(text: str) -> None:
    found = read(text.encode())
    assert [one.signal for one in found.events if one.signal == "log.cuda_error"] == ["log.cuda_error"]
    assert found.looked == ()


def test_a_log_with_a_line_of_kubectl_stays_a_log(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    lines = [f"2026-02-01 22:10:{second:02d},119 INFO worker: request done" for second in range(50)]
    lines.insert(20, "  Warning  FailedScheduling  3m  default-scheduler  0/3 nodes are available: 3 Insufficient cpu.")
    path.write_text("\n".join(lines))
    known = recognise(path)
    assert known is not None
    assert known.kind == FileKind.LOG


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_kubectl_prints_is_recognised(path: Path) -> None:
    known = recognise(path)
    assert known is not None
    assert known.kind == FileKind.DOCUMENT
