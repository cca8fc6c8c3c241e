"""Records the diagnoses of many inputs as JSON, and compares two such records after a rename.

Usage: python -m bench.compare_diagnoses record MANIFEST OUTFOLDER [--map FILE] [--jobs N]
       python -m bench.compare_diagnoses compare BEFORE AFTER [--map FILE] [--show N]

`record` runs each line of MANIFEST ({"id", "cwd", "args"}) with the latdoctor of this interpreter, and writes
OUTFOLDER/<id>.json and manifest.jsonl. `compare` prints what differs; exit 0 where nothing does. --map is JSON:

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
from typing import Any

TIMEOUT, MISSING = 300, "<missing>"  # seconds for one case; stands for a missing field


class Renames:
    """The map file. A path is the names of the fields on the way, joined by dots; places in lists do not count."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.keys: dict[str, str] = document.get("keys", {})
        self.values: dict[str, dict[str, str]] = document.get("values", {})
        self.options: dict[str, str] = document.get("options", {})
        self.ignore = tuple(f".{suffix}" for suffix in document.get("ignore", []))

    def stripped(self, value: Any, path: str = "") -> Any:
        if isinstance(value, list):
            return [self.stripped(one, path) for one in value]
        if isinstance(value, dict):
            kept = (name for name in value if not f"{path}.{name}".endswith(self.ignore))
            return {name: self.stripped(value[name], f"{path}.{name}") for name in kept}
        return value

    def renamed(self, value: Any, path: str = "") -> Any:
        if isinstance(value, list):
            return [self.renamed(one, path) for one in value]
        if isinstance(value, dict):
            fields = ((self.keys.get(name, name), one) for name, one in value.items())
            return {name: self.renamed(one, f"{path}.{name}") for name, one in fields}
        if isinstance(value, str):
            for suffix, texts in self.values.items():
                value = texts.get(value, value) if not suffix or path.endswith(f".{suffix}") else value
        return value


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, object, object]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from differences(before.get(name, MISSING), after.get(name, MISSING), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    elif before != after or type(before) is not type(after):
        yield path, before, after


def _of_lists(before: list[Any], after: list[Any], path: str) -> Iterator[tuple[str, object, object]]:
    """By `id` where each entry has its own, else by place."""
    old, new = _by_id(before), _by_id(after)
    if old is None or new is None:
        old, new = dict(enumerate(before)), dict(enumerate(after))
    elif old.keys() == new.keys() and list(old) != list(new):
        yield f"{path} (order)", list(old), list(new)
    for key in [*old, *(key for key in new if key not in old)]:
        yield from differences(old.get(key, MISSING), new.get(key, MISSING), f"{path}[{key}]")


def _by_id(entries: list[Any]) -> dict[Any, Any] | None:
    named = {one["id"]: one for one in entries if isinstance(one, dict) and "id" in one}
    return named if len(named) == len(entries) else None


def record(manifest: Path, folder: Path, renames: Renames, jobs: int) -> int:
    cases = map(json.loads, manifest.read_text().splitlines())
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as empty, ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(lambda case: _recorded(case, folder, renames, empty), cases))
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    print(f"{len(rows)} cases, {sum(not row['file'] for row in rows)} of them without JSON")
    return 0


def _recorded(case: dict[str, Any], folder: Path, renames: Renames, empty: str) -> dict[str, Any]:
    """The case's line of the new manifest. Nothing of the user's configuration or state is read."""
    where = os.environ | {"LATDOCTOR_STATE": f"{empty}/state", "XDG_CONFIG_HOME": empty, "TZ": "UTC", "COLUMNS": "80"}
    line = [sys.executable, "-m", "latdoctor", *(renames.options.get(word, word) for word in case["args"])]
    try:
        done = subprocess.run(line, cwd=case["cwd"], env=where, capture_output=True, timeout=TIMEOUT, check=False)
        document = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return case | {"exit_code": None, "file": "", "stderr": f"not done after {TIMEOUT} s"}
    except ValueError:
        return case | {"exit_code": done.returncode, "file": "", "stderr": done.stderr.decode(errors="replace")}
    row = case | {"exit_code": done.returncode, "file": f"{case['id']}.json"}
    (folder / row["file"]).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return row


def compare(before: Path, after: Path, renames: Renames, show: int) -> int:
    old, new = _read(before, renames), _read(after, renames)
    count = 0
    for name in [*old, *(name for name in new if name not in old)]:
        one, other = renames.stripped(renames.renamed(old.get(name, MISSING))), new.get(name, MISSING)
        if found := list(differences(one, other)):
            print(f"{name}: {len(found)} differences")
            count += 1
        for path, was, now in found[:show]:
            print(f"  {path[1:]}\n    - {json.dumps(was)}\n    + {json.dumps(now)}")
    print(f"{len(old)} cases before, {len(new)} after, {count} differ")
    return int(count > 0)


def _read(folder: Path, renames: Renames) -> dict[str, Any]:
    found = {}
    for row in map(json.loads, (folder / "manifest.jsonl").read_text().splitlines()):
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
    options = parser.parse_args()
    renames = Renames(json.loads(options.map.read_text()) if options.map else {})
    if options.command == "record":
        return record(options.first, options.second, renames, options.jobs)
    return compare(options.first, options.second, renames, options.show)


if __name__ == "__main__":
    sys.exit(main())
