"""Counts how many incidents of `fixtures/incident-texts` are answered right: the tuned half and the held-out one.

Usage: python -m bench.incident_texts [--show]        (--show names the cases of the tuned half that are not)
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "fixtures" / "incident-texts"
TUNED, HELD_OUT = "tuned", "held-out"
ANSWERED = (0, 3, 4)  # exit codes of `diagnose` with an answer
TIMEOUT = 120  # seconds
ANY, NONE, ANY_OF = "any", "none", "any-of:"


class Outcome(StrEnum):
    """How an answer compares with the truth."""

    RIGHT = "right"
    NOTHING_NAMED = "nothing named"
    OTHER_NAMED = "another cause first"
    FORBIDDEN_NAMED = "a forbidden cause named"
    OTHER_LEVEL = "another level"
    UNREAD = "not read"


@dataclass(frozen=True, slots=True)
class IncidentText:
    """One line of `cases.csv`."""

    id: str
    folder: Path
    arguments: tuple[str, ...]
    first: str
    level: str
    never: frozenset[str]

    def judged(self, answer: dict[str, Any]) -> Outcome:
        """How the JSON document of a diagnosis compares."""
        named = [cause["id"] for cause in answer["causes"] if cause["named"]]
        read = any(check["status"] in ("fired", "clear") for check in answer["checks"])
        if self.never & set(named):
            return Outcome.FORBIDDEN_NAMED
        if self.first == ANY and not read:
            return Outcome.UNREAD
        if self.first == NONE and named:
            return Outcome.OTHER_NAMED
        if self.first not in (ANY, NONE):
            wanted = self.first.removeprefix(ANY_OF).split(",")
            if not named:
                return Outcome.NOTHING_NAMED
            if named[0] not in wanted:
                return Outcome.OTHER_NAMED
        return Outcome.RIGHT if self.level in (ANY, answer["verdict"]["level"]) else Outcome.OTHER_LEVEL


def incident_texts(half: str) -> Iterator[IncidentText]:
    """The cases of one half, in the order of the file."""
    with (FOLDER / half / "cases.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="|"):
            yield IncidentText(
                id=row["case"],
                folder=FOLDER / half / row["folder"],
                arguments=tuple(row["arguments of diagnose"].split()),
                first=row["first cause"],
                level=row["verdict"],
                never=frozenset(filter(None, row["never"].split(","))),
            )


def outcome(case: IncidentText) -> Outcome:
    """Run `diagnose` as an engineer would, in the folder of the case."""
    command = [sys.executable, "-m", "latdoctor", "diagnose", *case.arguments, "-o", "json"]
    done = subprocess.run(command, cwd=case.folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return case.judged(json.loads(done.stdout)) if done.returncode in ANSWERED else Outcome.UNREAD


def main() -> None:
    """Print the counts of both halves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    for half in (TUNED, HELD_OUT):
        cases = list(incident_texts(half))
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(outcome, cases))
        counts = Counter(outcomes)
        print(f"{half}: {counts[Outcome.RIGHT]} of {len(cases)} right; ", end="")
        print(", ".join(f"{counts[one]} {one}" for one in Outcome if one != Outcome.RIGHT and counts[one]) or "all")
        for case, found in zip(cases, outcomes, strict=True):
            if options.show and half == TUNED and found != Outcome.RIGHT:
                print(f"  {case.id}: {found}")


if __name__ == "__main__":
    main()
