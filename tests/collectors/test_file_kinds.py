"""A file that was given with the wrong option is told its own, and one that is merely damaged is not."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.file_kinds import FileKind, by_kind, recognise, wrong_option_hint
from latdoctor.evidence.bundle import Artifact
from tests.cli.running import diagnosed, run
from tests.collectors.torch_trace.synthetic_traces import document, launched


def database(path: Path) -> bytes:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE a (b)")
    connection.close()
    return path.read_bytes()


TRACE = document(launched(60))
PAGE = b"# HELP a_b x\n# TYPE a_b counter\na_b 1\n"
LOG = b"[ 1843.308145] usb 1-1: new device\n[ 1843.308146] usb 1-1: gone\n"
ACCESS = b'10.1.2.3 - - [31/Jan/2026:02:49:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-" 0.012\n' * 3
TABLE = b"Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n65.1,1417580893,293,4838160.0,cudaMalloc\n"
ENGINE = json.dumps({"Layers": ["a", "b"], "Bindings": []}).encode()
STATS = json.dumps({"allocated_bytes.all.current": 5, "num_ooms": 0}).encode()
WRONG = [
    ("--nsys", TRACE, "a profiler trace", "--trace"),
    ("--nsys", PAGE, "a metrics page", "--metrics"),
    ("--nsys", LOG, "a log", "--log"),
    ("--trace", PAGE, "a metrics page", "--metrics"),
    ("--trace", gzip.compress(PAGE), "a metrics page", "--metrics"),
    ("--trace", TABLE, "a table of nsys stats", "--nsys"),
    ("--trace", b"database", "an SQLite database", "--nsys"),
    ("--trace", b"\x80\x04\x95\x05", "a pickle", "--torch-memory"),
    ("--trace", ACCESS, "a log", "--log"),
    ("--tensorrt", TRACE, "a profiler trace", "--trace"),
    ("--torch-memory", TRACE, "a profiler trace", "--trace"),
    ("--torch-memory", ENGINE, "output of trtexec", "--tensorrt"),
    ("--metrics", TRACE, "a profiler trace", "--trace"),
    ("--metrics", LOG, "a log", "--log"),
    ("--log", gzip.compress(TRACE), "a profiler trace", "--trace"),
    ("--log", PAGE, "a metrics page", "--metrics"),
    ("--changes", STATS, "torch's memory_stats", "--torch-memory"),
    ("--changes", TABLE, "a table of nsys stats", "--nsys"),
]


@pytest.mark.parametrize(("option", "content", "what", "own"), WRONG, ids=[f"{row[0]} {row[2]}" for row in WRONG])
def test_the_error_says_what_it_looks_like_and_which_option_to_use(
    option: str, content: bytes, what: str, own: str, tmp_path: Path
) -> None:
    path = tmp_path / "given"
    path.write_bytes(database(tmp_path / "db") if content == b"database" else content)
    outcome = run(["diagnose", option, str(path)])
    assert (outcome.code, outcome.out) == (1, "")
    assert f"next: it looks like {what}" in outcome.err
    assert f"pass it with {own} FILE" in outcome.err


def test_beside_another_source_it_stands_with_the_gap(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(PAGE)
    (tmp_path / "quiet.log").write_bytes(LOG)
    said = diagnosed("--trace", str(tmp_path / "page"), "--log", str(tmp_path / "quiet.log"))
    (gap,) = (gap for gap in said["gaps"] if gap["source"] == "torch_trace")
    assert gap["next_step"].startswith("it looks like a metrics page")


@pytest.mark.parametrize(
    ("option", "content"),
    [("--trace", TRACE[:-200]), ("--metrics", b"<html>502</html>"), ("--nsys", b"a,b\n1,2\n"), ("--changes", b"x\n")],
)
def test_what_is_damaged_or_unknown_keeps_its_own_advice(option: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(content)
    outcome = run(["diagnose", option, str(tmp_path / "given")])
    assert "next: " in outcome.err
    assert "it looks like" not in outcome.err


def test_a_file_of_every_kind_is_recognised_and_read_without_an_option(tmp_path: Path) -> None:
    contents = {
        "a": (TRACE, FileKind.TRACE), "b": (PAGE, FileKind.METRICS), "c": (LOG, FileKind.LOG),
        "d": (ACCESS, FileKind.LOG), "e": (TABLE, FileKind.NSIGHT), "f": (ENGINE, FileKind.TENSORRT),
        "g": (STATS, FileKind.TORCH_MEMORY), "h": (b"\x28\xb5\x2f\xfd..", FileKind.BUNDLE),
        "i": (b"NVIDIA Tegra Profiler Report\0", FileKind.NSIGHT_REPORT), "j": (b"hello", FileKind.DOCUMENT),
        "k": (gzip.compress(PAGE), FileKind.METRICS),
    }  # fmt: skip
    for name, (content, _) in contents.items():
        (tmp_path / name).write_bytes(content)
    recognised = {path: recognise(path) for path in sorted(tmp_path.iterdir())}
    found = {path.name: kind for kind, paths in by_kind(recognised).items() for path in paths}
    assert found == {name: kind for name, (_, kind) in contents.items()}


@given(st.binary(max_size=300))
def test_any_bytes_are_some_kind_or_none(content: bytes) -> None:
    assert isinstance(wrong_option_hint(Artifact("x/a", "x", "a", "a", 0.0, content), "x"), str)


def test_a_log_with_stacks_in_it_stays_a_log(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    lines = [f"2026-01-31 12:00:{second:02} INFO step {second}" for second in range(50)]
    dump = ["Current thread 0x00007f (most recent call first):", '  File "/a.py", line 1 in f']
    path.write_text("\n".join([*lines, *dump]))
    assert by_kind({path: recognise(path)}) == {FileKind.LOG: (path,)}
    path.write_text("\n".join(dump))
    assert by_kind({path: recognise(path)}) == {FileKind.DOCUMENT: (path,)}
