"""What the benchmarks share: command lines, child processes, environments of other packages, and printed results.

Results go to stdout (`--output text|json`), progress and failures to stderr.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from latdoctor.errors import OperationError

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
CACHE = ROOT / ".cache"


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser with `--output text|json`, and the module's docstring as its help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


def print_result(found: object, output: str, text: str = "") -> None:
    """Print `found` as JSON, or as `text`: by default one line per plain value, without those of the machine."""
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return
    if not text and isinstance(found, Mapping):
        plain = {
            name: value
            for name, value in _flat(found)
            if isinstance(value, int | float | str | None) and not name.startswith("machine")
        }
        width = max(map(len, plain), default=0)
        text = "\n".join(f"{name:{width}}  {value}" for name, value in plain.items())
    print(text)


def _flat(found: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_process(code: str, *words: object, python: str = sys.executable, path: str = "") -> dict[str, float]:
    """Run `code` in a process of its own: seconds of wall and processor time, peak memory in MB, and `result`.

    The last line that it prints has its result and the peak memory of its children in KiB. Compiled modules are kept,
    as they are where latdoctor is installed. Raises SystemExit if the process fails.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = path or str(SOURCE)
    started = time.perf_counter()
    process = subprocess.Popen([python, "-P", "-c", code, *map(str, words)], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    with process.stdout as output:
        printed = output.read().split()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the process ended with exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes there, KiB elsewhere
    return {
        "wall_s": round(wall, 3),
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "peak_mb": round((used.ru_maxrss + int(printed[-1])) * unit / 1e6, 1),
        "result": float(printed[-2]),
    }


def environment(name: str, requirements: str, *options: str) -> Path:
    """The interpreter of the virtual environment `.cache/NAME`; it is made if it is missing or its lock has changed.

    `requirements` are the lines of a requirements file. Raises OperationError if pip fails.
    """
    folder = CACHE / name
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    if python.exists() and stamp.exists() and stamp.read_text() == requirements:
        return python
    log(f"Setting up {folder}; this takes a minute.")
    venv.create(folder, with_pip=True, clear=True)
    requested = folder / "requested.txt"
    requested.write_text(requirements)
    command = [str(python), "-m", "pip", "install", "-qq", *options, "--requirement", str(requested)]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise OperationError(f"the packages for {name} could not be installed", next_step="see the output of pip above")
    requested.rename(stamp)
    return python
