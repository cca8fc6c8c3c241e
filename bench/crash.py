"""Kills a run, a rollback and a recovery at each of their calls, fails each call, and counts the states of the target.

Usage: python -m bench.crash [--only recover] [--every 1] [--results crash.json] [--write docs/remediation.md]

It takes ten minutes (Linux, x86-64). --results stores the rows of earlier parts, so that it can run in parts; --write
replaces the table in that page. The exit code is 1 where a target was left between two states.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.harness import arguments, log, markdown, print_result
from tests.crash.killing import Begin, Left, Sweep

MARKS = "<!-- python -m bench.crash -->", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """`caught`: how often a requirement was violated."""

    name: str
    calls: int
    tried: int
    before: int
    after: int
    caught: int
    codes: dict[str, int]  # exit codes, of calls that failed


def rows(only: Sequence[str], every: int) -> Iterator[Row]:
    for name, mutant, how in (
        ("killed", False, Sweep.killed),
        ("killed, by a mutant that journals after the change", True, Sweep.killed),
        ("a call fails", False, failed_once),
        ("a call fails, and all after it", False, failed_onwards),
    ):
        with tempfile.TemporaryDirectory() as folder, Sweep(Path(folder), mutant=mutant) as sweep:
            for begin in sweep.phases():
                row = f"{begin.phase}: {name}"
                if not (name == "killed" or begin.phase == "apply") or not (not only or any(w in row for w in only)):
                    continue
                yield counted(row, begin, [how(sweep, begin, point) for point in points(begin, every)])


def points(begin: Begin, every: int) -> range:
    return range(1, len(begin.calls) + 1, every)


def failed_once(sweep: Sweep, begin: Begin, point: int) -> Left:
    return sweep.failed(begin, point, onwards=False)


def failed_onwards(sweep: Sweep, begin: Begin, point: int) -> Left:
    return sweep.failed(begin, point, onwards=True)


def counted(name: str, begin: Begin, left: Sequence[Left]) -> Row:
    stands = Counter(one.stands for one in left)
    codes = Counter(str(one.code) for one in left if one.code >= 0)
    for one in [one for one in left if one.flaws][:5]:
        log(f"{name}, at {one.point} ({one.call}): {'; '.join(one.flaws)}")
    caught = sum(bool(one.flaws) for one in left)
    return Row(
        name, len(begin.calls), len(left), stands["before"], stands["after"], caught, dict(sorted(codes.items()))
    )


def table(found: Sequence[Row]) -> str:
    columns = ("what", "calls", "tried", "before", "after", "violations", "exit codes")
    codes = [", ".join(f"{code}: {count}" for code, count in row.codes.items()) or "–" for row in found]
    rows = [
        (row.name, row.calls, row.tried, row.before, row.after, row.caught, code)
        for row, code in zip(found, codes, strict=True)
    ]
    return "\n".join(markdown(columns, rows))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", action="append", default=[], help="rows with this word")
    parser.add_argument("--every", type=int, default=1, help="each n-th call")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--write", type=Path)
    chosen = parser.parse_args()
    kept: dict[str, Row] = {}
    if chosen.results and chosen.results.exists():
        kept = {row["name"]: Row(**row) for row in json.loads(chosen.results.read_text())}
    for row in rows(chosen.only, chosen.every):
        kept[row.name] = row
        log(f"{row.name}: {row.tried} tried, {row.caught} violations")
        if chosen.results:
            chosen.results.write_text(json.dumps([asdict(one) for one in kept.values()], indent=1))
    found = table(list(kept.values()))
    print_result(list(kept.values()), chosen.output, found)
    if chosen.write:
        begin, end = MARKS
        page = chosen.write.read_text()
        chosen.write.write_text(re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{found}\n{end}", page, flags=re.DOTALL))
    return int(any(row.caught and "mutant" not in row.name for row in kept.values()))


if __name__ == "__main__":
    sys.exit(main())
