"""Exit codes and usage errors: one message on stderr that says what to do next, and nothing on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import pages
from tests.cli.running import run, write_trusted

BUNDLE = str(Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal")


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the configuration of this machine nor of the repository plays a part."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "first.prom").write_bytes(pages.triton(81_000))
    (tmp_path / "last.prom").write_bytes(pages.triton(85_000))
    (tmp_path / "trace.json").write_text(_LAUNCHES)
    (tmp_path / "quiet.log").write_text("[    1.000000] eth0: link up\n")


_LAUNCHES = '{"traceEvents": [%s]}' % ", ".join(  # noqa: UP031 — braces of JSON
    f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {n * 1000}, "dur": 8,'
    f' "args": {{"correlation": {n}}}}},'
    f'{{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": {n * 1000 + 20}, "dur": 4,'
    f' "args": {{"correlation": {n}, "stream": 7, "device": 0}}}}'
    for n in range(100)
)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("BUNDLE", 3),  # critical
        ("BUNDLE --fail-on info", 3),
        ("BUNDLE --fail-on never", 0),
        ("--trace trace.json", 0),  # a warning
        ("--trace trace.json --fail-on critical", 0),
        ("--trace trace.json --fail-on warning", 3),
        ("--trace trace.json --fail-on info", 3),
        ("--trace trace.json --fail-on never", 0),
        ("--log quiet.log", 4),  # inconclusive
        ("--log quiet.log --fail-on info", 4),
        ("--log quiet.log --fail-on never", 4),
        ("--metrics first.prom --metrics last.prom --slo 100ms", 3),  # the SLO is broken, and nobody knows why
        ("--metrics first.prom --metrics last.prom --slo 100ms --fail-on never", 0),
        ("--metrics first.prom --metrics last.prom --slo 1s", 4),
    ],
)
def test_diagnose(arguments: str, code: int) -> None:
    outcome = run(["diagnose", *arguments.replace("BUNDLE", BUNDLE).split()])
    assert outcome.code == code, outcome.out
    assert outcome.out
    assert outcome.err == ""


@pytest.mark.parametrize(
    ("arguments", "told", "next_step"),
    [
        ("diagnose --bogus", "--bogus", "latdoctor diagnose -h"),
        ("diagnose --trace", "'--trace' requires an argument", ""),
        ("diagnose --output yaml", "'yaml'", "latdoctor diagnose -h"),
        ("diagnose --fail-on never-ever", "'never-ever'", "latdoctor diagnose -h"),
        ("diagnose --pid 0", "'--pid'", "latdoctor diagnose -h"),
        ("diagnose BUNDLE --trace trace.json", "a bundle and sources are exclusive", "give one of them"),
        ("diagnose BUNDLE --target intent", "--target is for collecting", "leave it out"),
        ("diagnose BUNDLE --window 3s", "--window is for collecting", "leave it out"),
        ("diagnose BUNDLE --log-pattern {ms}", "--log-pattern is for collecting", "leave it out"),
        ("baseline record BUNDLE --to b.json --window 3s", "--window is for collecting", "leave it out"),
        ("diagnose --log-pattern {ms}", "no log is named", "--log FILE"),
        ("collect --trace trace.json --to x --log-pattern {ms}", "no log is named", "--log FILE"),
        ("diagnose --log quiet.log --slo fast", "--slo: 'fast' is not a quantity", "--slo 500ms"),
        ("diagnose --log quiet.log --slo 5", "--slo: '5' is not a duration", "--slo 500ms"),
        ("diagnose --log quiet.log --slo -1s", "--slo: '-1s' is not a duration", "--slo 500ms"),
        ("diagnose BUNDLE --slo 5GiB", "--slo: '5GiB' is not a duration", "--slo 500ms"),
        ("diagnose --log quiet.log --slo-errors 200%", "'200%' is not a share", "--slo-errors 1%"),
        ("diagnose --log quiet.log --window 0s", "(got '0s')", "--window 10s"),
        ("diagnose --log quiet.log --window 2h", "(got '2h')", "--window 10s"),
        ("diagnose --target intent", "no target 'intent' is configured", "--server URL"),
        ("diagnose nowhere", "nowhere: no such file or folder", "check the path"),
        (
            "diagnose --log quiet.log --baseline nowhere.json",
            "nowhere.json: the baseline cannot be read",
            "check the path",
        ),
        ("diagnose --log quiet.log --baseline trace.json", "trace.json: not a baseline", "baseline record --to FILE"),
        ("diagnose --log quiet.log --rules nowhere", "nowhere: is not a folder of rules", "docs/contributing.md"),
        ("diagnose --log quiet.log --keep trace.json", "trace.json: already exists", "choose another name"),
        ("collect --log quiet.log", "Missing option '--to'", "latdoctor collect -h"),
        ("collect --log quiet.log --to trace.json", "trace.json: already exists", "choose another name"),
        ("collect --log quiet.log --to quiet.log/in", "quiet.log/in: the bundle cannot be written", "another place"),
        ("baseline show quiet.log", "quiet.log: not a baseline", "baseline record --to FILE"),
        ("baseline record BUNDLE --log quiet.log --to b.json", "are exclusive", "give one of them"),
        (
            "baseline record BUNDLE --to nowhere/b.json",
            "nowhere/b.json: the baseline cannot be written",
            "another place",
        ),
        ("bundle inspect quiet.log", "quiet.log: not a bundle", "--log quiet.log"),
        ("explain gpu-to-hot", "no cause or finding 'gpu-to-hot'", "gpu-hot"),
        ("explain app.batching.token-budget", "no cause or finding", "playbooks show app.batching.token-budget"),
        ("explain latency.p99", "no cause or finding 'latency.p99'", "it is a signal: "),
        ("explain zzzz", "no cause or finding 'zzzz'", "latdoctor rules list"),
        ("nonsense", "No such command 'nonsense'", "latdoctor -h"),
        ("rules nonsense", "No such command 'nonsense'", "latdoctor rules -h"),
    ],
)
def test_usage_errors(arguments: str, told: str, next_step: str) -> None:
    outcome = run(arguments.replace("BUNDLE", BUNDLE).split())
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    assert outcome.err.count(told) == 1, outcome.err
    assert next_step in outcome.err
    assert "Traceback" not in outcome.err
    assert len(outcome.err.splitlines()) <= 4


def test_nothing_to_remember_is_an_operational_error() -> None:
    outcome = run(["baseline", "record", "--log", "quiet.log", "--to", "b.json"])
    assert (outcome.code, outcome.out) == (1, "")
    assert "there is no value to record" in outcome.err
    assert "next: latdoctor preflight" in outcome.err
    assert not Path("b.json").exists()


@pytest.mark.parametrize(
    ("option", "next_step"),
    [("--slo", "--slo VALUE"), ("--slo-errors", "--slo-errors VALUE"), ("--window", "--window VALUE"),
     ("--target", "--target VALUE"), ("--server", "--server VALUE")],
)  # fmt: skip
@pytest.mark.parametrize("command", ["diagnose", "collect --to look"])
def test_an_empty_value_is_a_usage_error(command: str, option: str, next_step: str) -> None:
    outcome = run([*command.split(), "--log", "quiet.log", option, ""])
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{option} has an empty value" in outcome.err
    assert f"next: write {next_step}" in outcome.err


@pytest.mark.parametrize("url", ["ftp://x/metrics", "file:///etc/passwd", "http://", "http://h:port/", "://"])
def test_what_is_no_http_address_is_a_usage_error(url: str) -> None:
    for command in ("diagnose", "collect --to look", "baseline record --to b.json"):
        outcome = run([*command.split(), "--server", url])
        assert (outcome.code, outcome.out) == (2, "")
        assert "--server: " in outcome.err
        assert "is not an http or https address" in outcome.err
        assert "next: write it such as --server http://HOST:PORT/metrics" in outcome.err


def test_a_configured_address_that_is_none_is_told_with_its_target() -> None:
    write_trusted("targets: {shop: {server: [ftp://x/metrics]}}\n")
    outcome = run(["diagnose"])
    assert (outcome.code, outcome.out) == (2, "")
    assert "target shop: 'ftp://x/metrics' is not an http or https address" in outcome.err


def test_notices_go_to_stderr_and_the_answer_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(["diagnose", "--window", "0.1s"])
    assert outcome.code in (0, 3, 4)
    assert outcome.err == (
        "no source named: reading this machine (no metrics page on a local port)\nobserving for 0.1 s\n"
    )
    assert outcome.out.split(maxsplit=1)[0].rstrip(":,") in ("INCONCLUSIVE", "CRITICAL", "WARNING", "INFO")


@pytest.mark.parametrize("command", ["diagnose --keep", "collect --to"])
def test_a_bundle_that_exists_is_told_of_before_the_look(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "latdoctor.cli.collect_and_diagnose.collect_bundle", lambda *_, **__: pytest.fail("collected in vain")
    )
    outcome = run([*command.split(), "quiet.log", "--log", "quiet.log"])
    assert outcome.code == 2
    assert "quiet.log: already exists" in outcome.err


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("diagnose", "interrupted; nothing was kept\n"),
        ("diagnose --keep look.tar.zst", "interrupted; nothing was kept: look.tar.zst was not written\n"),
        ("collect --to look", "interrupted; nothing was kept: look was not written\n"),
        ("baseline record --to b.json", "interrupted; nothing was kept: b.json was not written\n"),
    ],
)
def test_interrupting_the_look_says_what_is_not_kept(
    arguments: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latdoctor.cli.collect_and_diagnose.collect_bundle", _interrupted)
    before = sorted(Path().iterdir())
    outcome = run([*arguments.split(), "--log", "quiet.log"])
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == f"latdoctor: {told}"
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("name", ["look", "look.tar.zst"])
def test_interrupting_the_writing_leaves_no_half_bundle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latdoctor.evidence.bundle_files._digest", _interrupted)
    before = sorted(Path().iterdir())
    outcome = run(["collect", "--to", name, "--log", "quiet.log"])
    assert outcome.err == f"latdoctor: interrupted; nothing was kept: {name} was not written\n"
    assert sorted(Path().iterdir()) == before


def test_interrupting_after_the_writing_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latdoctor.cli.collect_and_diagnose.case_of", _interrupted)
    outcome = run(["diagnose", "--keep", "look", "--log", "quiet.log"])
    assert (outcome.code, outcome.err) == (130, "latdoctor: interrupted; look was written and is kept\n")
    assert run(["bundle", "inspect", "look"]).code == 0


def test_interrupting_another_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latdoctor.cli.collect_and_diagnose.rule_set", _interrupted)
    outcome = run(["rules", "list"])
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "latdoctor: interrupted\n")
