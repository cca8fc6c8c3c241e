"""Records the diagnoses of many inputs as JSON, and compares two such records after a rename.

Usage: python bench/compare_diagnoses.py record MANIFEST OUTFOLDER [--map FILE] [--jobs N]
       python bench/compare_diagnoses.py compare BEFORE AFTER [--map FILE] [--show N]

`record` runs each line of MANIFEST ({"id", "cwd", "args"}) with the latdoctor of this interpreter, and writes
OUTFOLDER/<id>.json and OUTFOLDER/manifest.jsonl.
`compare` prints what differs; exit 0 where nothing does. --map is JSON:

keys     {"old": "new"}                          renamed fields, at any depth
values   {"path.suffix": {"old": "new"}}         renamed texts below fields whose path ends so; "" is every field
options  {"--old": "--new"}                      renamed command line options, for `record`
ignore   ["run_id", "message", "gaps.reason", ...]  fields that are not compared, by (old or new) path suffix
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT = 300  # seconds for one case
MISSING = "<missing>"


class Difference(NamedTuple):
    path: str
    before: object
    after: object


class Renames:
    """The map file. A path is the names of the fields on the way, joined by dots; places in lists do not count."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.keys: dict[str, str] = document.get("keys", {})
        self.values: dict[str, dict[str, str]] = document.get("values", {})
        self.options: dict[str, str] = document.get("options", {})
        self.ignore: list[str] = document.get("ignore", [])

    def ignored(self, path: str) -> bool:
        return any(f".{path}".endswith(f".{suffix}") for suffix in self.ignore)

    def stripped(self, value: Any, path: str = "") -> Any:
        """`value` without the fields that are ignored."""
        if isinstance(value, list):
            return [self.stripped(one, path) for one in value]
        if not isinstance(value, dict):
            return value
        below = {name: f"{path}.{name}".lstrip(".") for name in value}
        return {name: self.stripped(one, below[name]) for name, one in value.items() if not self.ignored(below[name])}

    def renamed(self, value: Any, path: str = "") -> Any:
        """`value` of before in the words of after."""
        if isinstance(value, list):
            return [self.renamed(one, path) for one in value]
        if isinstance(value, dict):
            names = {name: self.keys.get(name, name) for name in value}
            return {names[name]: self.renamed(one, f"{path}.{names[name]}".lstrip(".")) for name, one in value.items()}
        if isinstance(value, str):
            for suffix, texts in self.values.items():
                if not suffix or f".{path}".endswith(f".{suffix}"):
                    value = texts.get(value, value)
        return value


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from differences(before.get(name, MISSING), after.get(name, MISSING), f"{path}.{name}".lstrip("."))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    elif before != after or type(before) is not type(after):
        yield Difference(path, before, after)


def _of_lists(before: list[Any], after: list[Any], path: str) -> Iterator[Difference]:
    """By `id` where each entry has its own, else by place."""
    old, new = _by_id(before), _by_id(after)
    if old is None or new is None:
        old, new = dict(enumerate(before)), dict(enumerate(after))
    elif list(old) != list(new) and old.keys() == new.keys():
        yield Difference(f"{path} (order)", list(old), list(new))
    for key in [*old, *(key for key in new if key not in old)]:
        yield from differences(old.get(key, MISSING), new.get(key, MISSING), f"{path}[{key}]")


def _by_id(entries: list[Any]) -> dict[Any, Any] | None:
    named = {one["id"]: one for one in entries if isinstance(one, dict) and "id" in one}
    return named if len(named) == len(entries) else None


def record(manifest: Path, folder: Path, renames: Renames, jobs: int) -> int:
    cases = [json.loads(line) for line in manifest.read_text().splitlines() if line.strip()]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as empty, ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(lambda case: _recorded(case, folder, renames, empty), cases))
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "manifest.jsonl").write_text(lines)
    print(f"{len(rows)} cases, {sum(not row['file'] for row in rows)} of them without JSON")
    return 0


def _recorded(case: dict[str, Any], folder: Path, renames: Renames, empty: str) -> dict[str, Any]:
    """The case's line of the new manifest. Nothing of the user's configuration or state is read."""
    places = {"LATDOCTOR_STATE": f"{empty}/state", "XDG_CONFIG_HOME": empty, "TZ": "UTC", "COLUMNS": "80"}
    arguments = [renames.options.get(word, word) for word in case["args"]]
    line = [sys.executable, "-m", "latdoctor", *arguments]
    environment = os.environ | places
    try:
        done = subprocess.run(
            line, cwd=case["cwd"], env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return case | {"exit_code": None, "file": "", "stderr": f"not done after {TIMEOUT} s"}
    row = case | {"exit_code": done.returncode, "file": f"{case['id']}.json"}
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return row | {"file": "", "stderr": done.stderr.strip()}
    (folder / row["file"]).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return row


def compare(before: Path, after: Path, renames: Renames, show: int) -> int:
    old, new = _read(before, renames), _read(after, renames)
    count = 0
    for name in [*old, *(name for name in new if name not in old)]:
        one, other = renames.stripped(renames.renamed(old.get(name, MISSING))), new.get(name, MISSING)
        found = list(differences(one, other))
        count += bool(found)
        print(*([f"{name}: {len(found)} differences"] if found else []), sep="\n", end="\n" if found else "")
        for path, was, now in found[:show]:
            print(f"  {path}\n    - {json.dumps(was, ensure_ascii=False)}\n    + {json.dumps(now, ensure_ascii=False)}")
    print(f"{len(old)} cases before, {len(new)} after, {count} differ")
    return int(count > 0)


def _read(folder: Path, renames: Renames) -> dict[str, Any]:
    rows = map(json.loads, (folder / "manifest.jsonl").read_text().splitlines())
    found = {}
    for row in rows:
        document = json.loads((folder / row["file"]).read_text()) if row["file"] else MISSING
        found[row["id"]] = {"exit_code": row["exit_code"], "document": renames.stripped(document)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["record", "compare"])
    parser.add_argument("first", type=Path, metavar="MANIFEST|BEFORE")
    parser.add_argument("second", type=Path, metavar="OUTFOLDER|AFTER")
    parser.add_argument("--map", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="record: cases at a time")
    parser.add_argument("--show", type=int, default=10, help="compare: differences shown of each case")
    given = parser.parse_args()
    renames = Renames(json.loads(given.map.read_text()) if given.map else {})
    if given.command == "record":
        return record(given.first, given.second, renames, given.jobs)
    return compare(given.first, given.second, renames, given.show)


if __name__ == "__main__":
    sys.exit(main())
