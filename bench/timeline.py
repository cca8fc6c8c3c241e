"""The timeline of an incident of 10 000 entries, in each of its forms.

    python bench/timeline.py --output json

Entries are samples, windows of verification, notes, alerts and diagnoses by turns. Each run is a process of its own
that has the entries in memory already: what is measured is adding them up to an incident, making the timeline, and
rendering it. The forms take turns, and medians are compared.

`slowest_s`    the median of the slowest form. Aim: 2
`journal_s`    reading the same number of entries from the journal's file, each proven to follow the one before
`growth_4x`    the time of the slowest form for four times as many entries, over its time for these. Aim: 4.8
`peak_mb`      memory of the process that took most, Python and its packages included

Times on a machine with neighbours swing by a third and more: every run is listed, with the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from latdoctor.evaluation.machine_state import state

ROOT = Path(__file__).resolve().parents[1]
ENTRIES = 10_000
FORMS = ("json", "markdown", "text", "cloudevents", "html")

# One run: the seconds of it, the bytes that came out, and the memory of the process in KiB.
RENDER = """
import resource, sys, time
from latdoctor.cli.timeline import Format, _rendered
from latdoctor.incident.state import incidents
from latdoctor.incident.timeline import timeline
from tests.incident.stories import long
form, entries = Format(sys.argv[1]), long(int(sys.argv[2])).entries
small = entries[:20]
_rendered(timeline(incidents(small)[0]), form)  # what is loaded once
began = time.perf_counter()
made = _rendered(timeline(incidents(entries)[0]), form)
print(time.perf_counter() - began, len(made.encode()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
READ = """
import sqlite3, sys, time
from pathlib import Path
from latdoctor.journal.store import Journal
from tests.incident.stories import long
path = Path(sys.argv[1]) / "state" / "journal.sqlite"
journal = Journal.opened(path)
rows = [
    (e.seq, e.run, e.at, e.monotonic, e.boot, e.kind, bytes(e.body).decode(), e.previous, e.digest)
    for e in long(int(sys.argv[2])).entries
]
with sqlite3.connect(path) as connection:  # at once: each by itself would sync the disk
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
connection.close()
began = time.perf_counter()
found = len(Journal.reading(path).entries())
print(time.perf_counter() - began, found, 0)
"""


def run_once(code: str, *arguments: object) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    seconds, size, peak = done.stdout.split()
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes there, KiB elsewhere
    return {"seconds": round(float(seconds), 3), "bytes": int(size), "peak_mb": round(int(peak) * unit / 1e6, 1)}


def benchmark(entries: int, runs: int, forms: list[str]) -> dict[str, object]:
    before = state()
    found: dict[str, list[dict[str, float]]] = {form: [] for form in forms}
    for _ in range(runs):
        for form in forms:
            found[form].append(run_once(RENDER, form, entries))
    medians = {form: statistics.median(run["seconds"] for run in listed) for form, listed in found.items()}
    slowest = max(medians, key=lambda form: medians[form])
    longer = statistics.median(run_once(RENDER, slowest, 4 * entries)["seconds"] for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        read = run_once(READ, folder, entries)
    return {
        "benchmark": "timeline",
        "entries": entries,
        "slowest": slowest,
        "slowest_s": medians[slowest],
        **{f"{form}_s": seconds for form, seconds in medians.items()},
        "journal_s": read["seconds"],
        "growth_4x": round(longer / medians[slowest], 2),
        "peak_mb": max(run["peak_mb"] for listed in found.values() for run in listed),
        "runs": found,
        "machine_before": before,
        "machine_after": state(),
    }


def forms() -> list[str]:
    """Those that this version has."""
    sys.path.insert(0, str(ROOT / "src"))
    from latdoctor.cli.timeline import TimelineFormat

    return [form.value for form in TimelineFormat if form.value in FORMS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", choices=["text", "json"], default="text")
    given = parser.parse_args()
    began = time.monotonic()
    found = benchmark(given.entries, given.runs, forms())
    found["took_s"] = round(time.monotonic() - began, 1)
    if given.output == "json":
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(f"{key:16} {value}" for key, value in found.items() if isinstance(value, int | float | str)))


if __name__ == "__main__":
    main()
