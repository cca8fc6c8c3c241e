"""Finding traces: files and folders, short unique names, gaps for what is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from latdoctor.collectors import input_files
from latdoctor.collectors.base import CollectRequest, CollectResult
from latdoctor.collectors.torch_trace import COLLECTOR, read_traces
from latdoctor.errors import SourceError
from tests.collectors.torch_trace.synthetic_traces import document, launched


class Clock:
    def now(self) -> float:
        return 1000.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing to wait for")


def collect(*paths: Path) -> CollectResult:
    return COLLECTOR.collect(CollectRequest(traces=paths), Clock())


def put(path: Path, content: bytes = b"[]") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("trace.json", "trace"),
        ("bert.pt.trace.json.gz", "bert"),
        ("host1_42.1690000000.pt.trace.json", "host1_42.1690000000"),
        ("a b;rm -rf.json", "a-b-rm--rf"),
        ("..\x1b[31m.json", "31m"),
        ("x" * 200 + ".json", "x" * 60),
        ("ключ.json", "trace"),
    ],
)
def test_names_are_short_and_safe(file: str, group: str, tmp_path: Path) -> None:
    [found] = collect(put(tmp_path / file)).artifacts
    assert found.group == group
    assert found.name == f"torch_trace/{group}.json"
    assert "\x1b" not in found.source
    assert found.taken_at == 1000.0


def test_equal_names_are_numbered(tmp_path: Path) -> None:
    found = collect(put(tmp_path / "a" / "run.json"), put(tmp_path / "b" / "run.json.gz", gzip.compress(b"[]")))
    assert [artifact.name for artifact in found.artifacts] == ["torch_trace/run.json", "torch_trace/run-2.json.gz"]


def test_a_folder_gives_its_traces(tmp_path: Path) -> None:
    for name in ("b.json", "a.json.gz", "notes.txt", "deeper/c.json"):
        put(tmp_path / name)
    found = collect(tmp_path)
    assert [artifact.name for artifact in found.artifacts] == ["torch_trace/a.json", "torch_trace/b.json"]
    assert len({artifact.group for artifact in found.artifacts}) == 1  # the ranks of one run are read together
    assert not found.gaps


def test_what_is_no_trace_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = collect(tmp_path / "gone.json", tmp_path / "empty", put(tmp_path / "good.json"))
    assert [artifact.group for artifact in found.artifacts] == ["good"]
    reasons = [gap.reason for gap in found.gaps]
    assert "does not exist" in reasons[0]
    assert "contains no file of this kind" in reasons[1]
    assert all(gap.next_step and set(gap.signals) == COLLECTOR.provides for gap in found.gaps)


def test_a_folder_of_very_many_traces_is_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MAX_FILES", 3)
    for number in range(5):
        put(tmp_path / f"{number}.json")
    found = collect(tmp_path)
    assert len(found.artifacts) == 3
    assert "contains 5 files; only the first 3" in found.gaps[0].reason


def test_too_many_events_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_traces, "MAX_KEPT", 10)
    [artifact] = collect(put(tmp_path / "large.json", document(launched(20)))).artifacts
    with pytest.raises(SourceError, match="more than the 10 GPU events"):
        COLLECTOR.parse((artifact,))


def test_it_is_asked_only_where_traces_are_given() -> None:
    assert COLLECTOR.is_requested(CollectRequest(traces=(Path("x"),)))
    assert not COLLECTOR.is_requested(CollectRequest())
    assert COLLECTOR.preflight()[0].status == "if given"
