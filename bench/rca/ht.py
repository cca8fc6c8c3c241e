"""Runs PyRCA's HT in its own environment: one run per input line, its scores per output line.

It is started by `python -m bench.rca` and imports nothing of latdoctor.
"""

from __future__ import annotations

import json
import sys

import pandas
from pyrca.analyzers.ht import HT, HTConfig


def main() -> None:
    """Answer every line of stdin: {"names", "before", "incident", "edges", "adjusted"} → {"scores"} or {"failed"}."""
    for line in sys.stdin:
        try:
            answer = {"scores": scores(json.loads(line))}
        except Exception as error:  # noqa: BLE001 — any exception is a failure of the method, and is reported
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def scores(run: dict) -> dict[str, float]:
    """The score of each column."""
    names = run["names"]
    graph = pandas.DataFrame(0, index=names, columns=names)
    for cause, effect in run["edges"]:
        graph.loc[cause, effect] = 1
    before, incident = (pandas.DataFrame(run[side], columns=names) for side in ("before", "incident"))
    model = HT(HTConfig(graph=graph, root_cause_top_k=len(names)))
    model.train(before)
    found = model.find_root_causes(incident, adjustment=run["adjusted"])
    return {name: float(score) for name, score in found.root_cause_nodes}


if __name__ == "__main__":
    main()
