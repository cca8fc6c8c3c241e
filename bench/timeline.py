"""The timeline of an incident of 10,000 entries, in each of its formats.

    python -m bench.timeline --output json

Entries are samples, windows of verification, notes, alerts and diagnoses in turn. Each run is a process of its own with
the entries in memory: measured are computing the incident and the timeline, and rendering it. The formats alternate,
and medians are compared.

`slowest_s`    the median of the slowest format. Target: 2
`journal_s`    reading the same number of entries from the journal's file, with each digest verified
`growth_4x`    the time of the slowest format for four times as many entries, over its time for these. Target: 4.8
`peak_mb`      the largest memory of a process, Python and its packages included

Times on a shared machine vary by a third and more: every run is listed, with the load of the machine.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence

from bench.harness import ROOT, SOURCE, arguments, print_result, run_process
from latdoctor.cli.timeline import TimelineFormat
from latdoctor.load.machine_state import state

ENTRIES = 10_000
PATH = os.pathsep.join([str(SOURCE), str(ROOT)])
RENDER = """
import sys, time
from latdoctor.cli.timeline import TimelineFormat, _rendered
from latdoctor.incident.state import incidents_in
from latdoctor.incident.timeline import timeline
from tests.incident.scenarios import long
form, entries = TimelineFormat(sys.argv[1]), long(int(sys.argv[2])).entries
_rendered(timeline(incidents_in(entries[:20])[0]), form)  # loads the modules
began = time.perf_counter()
_rendered(timeline(incidents_in(entries)[0]), form)
print(time.perf_counter() - began, 0)
"""
READ = """
import sqlite3, sys, time
from pathlib import Path
from latdoctor.journal.store import Journal
from tests.incident.scenarios import long
path = Path(sys.argv[1]) / "state" / "journal.sqlite"
journal = Journal.opened(path)
rows = [
    (e.seq, e.run, e.at, e.monotonic, e.boot, e.kind, bytes(e.body).decode(), e.previous, e.digest)
    for e in long(int(sys.argv[2])).entries
]
with sqlite3.connect(path) as connection:  # in one transaction: one for each would sync the disk each time
    connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
connection.close()
began = time.perf_counter()
Journal.reading(path).entries()
print(time.perf_counter() - began, 0)
"""


def benchmark(entries: int, runs: int, forms: Sequence[str]) -> dict[str, object]:
    before = state()
    found: dict[str, list[dict[str, float]]] = {form: [] for form in forms}
    for _ in range(runs):
        for form in forms:
            found[form].append(run_process(RENDER, form, entries, path=PATH))
    medians = {form: round(statistics.median(run["result"] for run in listed), 3) for form, listed in found.items()}
    slowest = max(medians, key=lambda form: medians[form])
    longer = statistics.median(run_process(RENDER, slowest, 4 * entries, path=PATH)["result"] for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        read = run_process(READ, folder, entries, path=PATH)
    return {
        "benchmark": "timeline",
        "entries": entries,
        "slowest": slowest,
        "slowest_s": medians[slowest],
        **{f"{form}_s": seconds for form, seconds in medians.items()},
        "journal_s": round(read["result"], 3),
        "growth_4x": round(longer / medians[slowest], 2),
        "peak_mb": max(run["peak_mb"] for listed in found.values() for run in listed),
        "runs": found,
        "machine_before": before,
        "machine_after": state(),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print_result(benchmark(options.entries, options.runs, [form.value for form in TimelineFormat]), options.output)


if __name__ == "__main__":
    main()
