"""Output that nobody reads, or that has no room: never a traceback, and the verdict's exit code where it is known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUNDLE = str(Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal")
LATDOCTOR = [sys.executable, "-c", "from latdoctor.cli.main import main; main()"]
FULL = Path("/dev/full")
ANSWERS = pytest.mark.parametrize("output", ["text", "json", "markdown"])


def _shell(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`latdoctor ARGUMENTS` with its streams redirected by the shell."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$@" {redirected}', "bash", *LATDOCTOR, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@ANSWERS
def test_a_reader_who_has_gone_leaves_the_verdicts_exit_code(output: str) -> None:
    read, write = os.pipe()
    os.close(read)  # gone before the first word: nothing depends on who is faster
    try:
        done = subprocess.run(
            [*LATDOCTOR, "diagnose", BUNDLE, "-o", output],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (3, "")


@ANSWERS
def test_the_first_line_alone_may_be_read(output: str) -> None:
    done = _shell("| head -n 1", "diagnose", BUNDLE, "-o", output)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.count("\n") == 1


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", [f"diagnose {BUNDLE} -v", f"diagnose {BUNDLE} -o json", "rules list", "--help"])
def test_a_full_disk_is_told(command: str) -> None:
    done = _shell("> /dev/full", *command.split())
    assert done.returncode == 1
    assert done.stderr == (
        "latdoctor: the output could not be written: No space left on device\n  next: write it to another place\n"
    )


def test_a_closed_stdout_is_told_before_the_look() -> None:
    done = _shell(">&-", "diagnose", BUNDLE)
    assert done.returncode == 1
    assert done.stderr.startswith("latdoctor: stdout is closed, so the answer cannot be printed\n  next: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", "2>&- <&-"])
def test_a_lost_stderr_costs_only_its_notices(redirected: str) -> None:
    done = _shell(redirected, "diagnose", BUNDLE)
    assert done.returncode == 3
    assert done.stdout.startswith("CRITICAL")
    assert _shell(redirected, "diagnose", "nowhere").returncode == 2


def test_everything_closed_is_an_error_without_a_word() -> None:
    assert _shell(">&- 2>&- <&-", "diagnose", BUNDLE).returncode == 1


def test_an_encoding_that_lacks_characters_shows_marks_for_them() -> None:
    done = subprocess.run(
        [*LATDOCTOR, "diagnose", BUNDLE],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 3, done.stderr
    assert b"?" in done.stdout
