"""Bad input: one clear message for each source, and the others go on."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli import pages
from tests.cli.running import checks, diagnosed, run

BUNDLE = Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal"
EMPTY_TRACE = b'{"traceEvents": []}'
XID = "[Mon Nov  3 10:00:01 2025] NVRM: Xid (PCI:0000:3b:00): 31, pid=4127, Ch 00000010\n"


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    Path("kern.log").write_text(XID)


FILES = {
    "cut.json.gz": gzip.compress(json.dumps({"traceEvents": [{"ts": n} for n in range(5000)]}).encode())[:400],
    "plain.json.gz": EMPTY_TRACE[:-1],
    "words.json": b"hello\n",
    "half.json": b'{"traceEvents": [{"ph": "X", "ts": 1',
    "array.json": b"[1, 2, 3]",
    "empty": b"",
    "web.prom": b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
    "foreign.prom": b"foo_total 3\n",
    "half.prom": b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name="a"} 1\nvllm:num_re',
    "nan.prom": b'vllm:num_requests_waiting{model_name="a"} NaN\n',
    "binary": bytes(range(256)) * 4,
}


@pytest.mark.parametrize(
    ("option", "name", "told"),
    [
        ("--trace", "cut.json.gz", "cut off"),
        ("--trace", "plain.json.gz", "plain.json.gz"),
        ("--trace", "words.json", "not JSON"),
        ("--trace", "half.json", "half.json"),
        ("--trace", "array.json", "array.json"),
        ("--trace", "empty", "empty"),
        ("--trace", "missing", "missing: does not exist"),
        ("--trace", "folder", "folder: contains no file of this kind"),
        ("--trace", "binary", "not JSON"),
        ("--metrics", "empty", "is empty"),
        ("--metrics", "missing", "missing: there is no such file"),
        ("--metrics", "folder", "folder"),
        ("--metrics", "web.prom", "HTML"),
        ("--metrics", "foreign.prom", "without a dialect"),
        ("--metrics", "nan.prom", "is nan"),
        ("--metrics", "binary", "binary"),
        ("--log", "empty", "no log line"),
        ("--log", "missing", "missing: does not exist"),
        ("--log", "folder", "folder: is "),
    ],
)
def test_one_bad_source_is_a_gap_and_the_others_go_on(option: str, name: str, told: str) -> None:
    Path("folder").mkdir()
    if name in FILES:
        Path(name).write_bytes(FILES[name])
    said = diagnosed(option, name, "--log", "kern.log", code=3)
    assert "gpu-xid" in checks(said, "fired"), "the log beside it was read"
    gaps = [gap for gap in said["gaps"] if told in gap["reason"]]
    assert len(gaps) == 1, said["gaps"]
    assert gaps[0]["signals"] or name == "foreign.prom", "it says what it hides, where anybody can know"
    shown = run(["diagnose", option, name, "--log", "kern.log"])
    if name not in ("nan.prom", "foreign.prom"):  # pages that were read, though nothing on them is known
        assert told in shown.err, "the answer of one screen has no room for it"
    assert "Traceback" not in shown.out + shown.err


def test_half_a_page_tells_what_stands_on_it() -> None:
    """A page cut off within a line: the whole lines count, and the half one is told of."""
    Path("half.prom").write_bytes(FILES["half.prom"])
    said = diagnosed("--metrics", "half.prom", "--log", "kern.log", code=3)
    assert any("half.prom" in json.dumps(gap) or "half" in (gap["subject"] or "") for gap in said["gaps"])


@pytest.mark.parametrize(("option", "name"), [("--trace", "t.json"), ("--metrics", "m.prom"), ("--log", "l.log")])
def test_a_file_that_may_not_be_read_is_a_gap(option: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not stop root, so the refusal is made."""
    Path(name).write_bytes(b"x")
    real = Path.open
    real_open = open

    def denied(self: Path, *arguments: object, **others: object) -> object:
        if self.name == name:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *arguments, **others)  # type: ignore[call-overload]

    def builtin(file: object, *arguments: object, **others: object) -> object:
        if str(file).endswith(name):
            raise PermissionError(13, "Permission denied", str(file))
        return real_open(file, *arguments, **others)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", denied)
    monkeypatch.setattr("builtins.open", builtin)
    said = diagnosed(option, name, "--log", "kern.log", code=3)
    gaps = [gap for gap in said["gaps"] if "ermission denied" in gap["reason"]]
    assert len(gaps) == 1, said["gaps"]
    assert name in gaps[0]["reason"]


@pytest.mark.parametrize("option", ["--trace", "--metrics", "--log"])
def test_a_file_in_a_folder_that_may_not_be_entered_is_a_gap(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.stat

    def denied(self: Path, **others: bool) -> object:
        if "sealed" in self.parts:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, **others)

    monkeypatch.setattr(Path, "stat", denied)
    said = diagnosed(option, "sealed/x", "--log", "kern.log", code=3)
    gaps = [gap for gap in said["gaps"] if "ermission denied" in gap["reason"]]
    assert len(gaps) == 1, said["gaps"]
    assert gaps[0]["signals"]
    assert gaps[0]["next_step"]


def test_a_bundle_that_may_not_be_read_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)
    outcome = run(["diagnose", str(BUNDLE)])
    assert (outcome.code, outcome.out) == (2, "")
    assert "cannot be read: Permission denied\n  next: check its rights" in outcome.err


@pytest.mark.parametrize("command", ["diagnose --log kern.log", "rules lint"])
def test_a_rules_folder_that_may_not_be_read_is_told(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode, **_: Path(path).name != "own")
    outcome = run([*command.split(), "--rules", "own"])
    assert (outcome.code, outcome.out) == (2, "")
    assert "own: cannot be read: Permission denied" in outcome.err


def test_an_unreachable_server_is_a_gap() -> None:
    with socket.socket() as taken:  # a port that is bound and does not listen refuses
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/metrics"
        said = diagnosed("--server", url, "--window", "0.1s", "--log", "kern.log", code=3)
    (gap,) = (gap for gap in said["gaps"] if gap["source"] == "prometheus")
    assert url in gap["reason"]
    assert "latency.p99" in gap["signals"]
    assert "check that the server is up" in gap["next_step"]


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"


def test_a_hanging_server_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from latdoctor.cli import resolve_request
    from latdoctor.collectors.base import CollectRequest

    def impatient(**given: object) -> CollectRequest:
        return CollectRequest(**given, timeout=0.2)  # type: ignore[arg-type]

    monkeypatch.setattr(resolve_request, "CollectRequest", impatient)
    said = diagnosed("--server", silent, "--window", "0.1s", "--log", "kern.log", code=3)
    (gap,) = (gap for gap in said["gaps"] if gap["source"] == "prometheus")
    assert "did not answer" in gap["reason"] or "timed out" in gap["reason"] or "within" in gap["reason"]
    assert "gpu-xid" in checks(said, "fired")


def _one_byte_more(folder: Path) -> None:
    with (folder / "artifacts" / "nvml.json").open("ab") as file:
        file.write(b" ")


def _no_artifact(folder: Path) -> None:
    (folder / "artifacts" / "nvml.json").unlink()


def _no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _half_a_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text()[:300])


def _of_another_version(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"schema_version": "1"', '"schema_version": "9"'))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_one_byte_more, "the artifact nvml.json was changed"),
        (_no_artifact, "the artifact nvml.json is missing"),
        (_no_manifest, "not a bundle: it has no manifest.json"),
        (_half_a_manifest, "its manifest.json is damaged"),
        (_of_another_version, "bundle of version 9"),
    ],
)
@pytest.mark.parametrize("command", ["diagnose", "bundle inspect"])
def test_a_damaged_bundle_is_refused(command: str, damage: Callable[[Path], None], told: str) -> None:
    shutil.copytree(BUNDLE, "look")
    damage(Path("look"))
    outcome = run([*command.split(), "look"])
    assert (outcome.code, outcome.out) == (2, "")
    assert f"latdoctor: look: {told}" in outcome.err
    assert "\n  next: " in outcome.err


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_cut_archive_is_told_as_such(kept: float) -> None:
    assert run(["diagnose", str(BUNDLE), "--keep", "look.tar.zst"]).code == 3
    whole = Path("look.tar.zst").read_bytes()
    Path("half.tar.zst").write_bytes(whole[: int(len(whole) * kept)])
    outcome = run(["diagnose", "half.tar.zst"])
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "latdoctor: half.tar.zst: the archive is cut off\n"
        "  next: copy it again from where it was collected, or collect it anew\n"
    )


def test_a_damaged_archive_is_not_called_cut() -> None:
    assert run(["diagnose", str(BUNDLE), "--keep", "look.tar.zst"]).code == 3
    whole = bytearray(Path("look.tar.zst").read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    Path("bent.tar.zst").write_bytes(bytes(whole))
    outcome = run(["diagnose", "bent.tar.zst"])
    assert (outcome.code, outcome.out) == (2, "")
    assert "bent.tar.zst: " in outcome.err
    assert "cut off" not in outcome.err
    assert "next: " in outcome.err


@pytest.mark.parametrize(
    ("command", "what"),
    [("diagnose --keep", "bundle"), ("collect --to", "bundle"), ("baseline record --to", "baseline")],
)
def test_a_folder_that_may_not_be_written_is_told_before_the_look(
    command: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions do not stop root, so the refusal is made."""
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "sealed")
    monkeypatch.setattr(
        "latdoctor.cli.collect_and_diagnose.collect_bundle", lambda *_, **__: pytest.fail("collected in vain")
    )
    Path("sealed").mkdir()
    outcome = run([*command.split(), "sealed/look", "--log", "kern.log"])
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"latdoctor: sealed/look: the {what} cannot be written: Permission denied\n  next: choose another place\n"
    )


@pytest.mark.parametrize(
    ("name", "option"),
    [("trace.json.gz", "--trace"), ("trace.json", "--trace"), ("page.prom", "--metrics"), ("dmesg.log", "--log")],
)
def test_a_source_given_in_a_bundles_place_is_told_its_option(name: str, option: str) -> None:
    Path(name).write_bytes(pages.triton(5))
    outcome = run(["bundle", "inspect", name])
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{name}: not a bundle" in outcome.err
    assert f"latdoctor diagnose {option} {name}" in outcome.err


def test_all_errors_of_a_rules_folder_are_shown_with_their_lines() -> None:
    for name in ("findings", "causes"):
        Path("own", name).mkdir(parents=True)
    Path("own/findings/mine.yaml").write_text(
        "- id: Bad Id\n  message: much\n  when: nope.signal > 5\n  tier: nowhere\n  leak: 300%\n"
        "- id: two\n  message: two\n  when: queue.depth > 3\n  tier: application\n  leak: 2%\n  bogus: 1\n"
    )
    Path("own/causes/x.yaml").write_text("id: x\nid: y\n")
    for command in ("rules lint", "diagnose --log kern.log", "rules list", "rules test"):
        outcome = run([*command.split(), "--rules", "own"])
        assert (outcome.code, outcome.out) == (2, "")
        for told in (
            "mine.yaml:1: ",
            "mine.yaml:3: ",
            "mine.yaml:4: ",
            "mine.yaml:5: ",
            "mine.yaml:11: ",
            "x.yaml:2: ",
        ):
            assert outcome.err.count(told) == 1, outcome.err
        assert "latdoctor: 6 problems found" in outcome.err
        assert "next: see docs/contributing.md" in outcome.err
