"""The limit that `capacity history` estimates from a sweep of ordinary load, beside the one that is measured.

Usage: python -m bench.capacity_history [--only SETTING] [--reach 0.75]
For each setting of `bench.capacity` the limit is measured first. Then a new server takes load that rises and falls in
steps of 30 s up to `--reach` of that limit; Prometheus (in the path, or its folder in LATDOCTOR_PROMETHEUS) scrapes it
every 2 s. Last `latdoctor capacity history` is asked. The model of the servers sleeps instead of computing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from bench.capacity import SETTINGS, SLO, measured, served
from bench.harness import log, markdown
from bench.prometheus_process import prometheus
from latdoctor.errors import OperationError
from latdoctor.load.arrivals import Poisson
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.process import run_load

_SCRAPE, _STEP, _PHASE = 2.0, 10.0, 30.0  # seconds
_SHARES = (0.13, 0.27, 0.4, 0.53, 0.67, 0.8, 0.93, 1.0, 0.87, 0.6, 0.33)  # of the reach
_ANSWERED = (0, 4)  # exit codes with an answer


def estimated(name: str, limit: float, reach: float) -> dict[str, Any]:
    """What `capacity history` says of a server after load up to this share of its limit."""
    arguments, long_share = SETTINGS[name]
    mix = Mix(long_share=long_share, audio_share=0)
    phases = tuple(
        LoadPhase(f"{number}", _PHASE, Poisson(limit * reach * share), mix) for number, share in enumerate(_SHARES)
    )
    with served(arguments) as address, prometheus(address, "server", _SCRAPE) as server:
        time.sleep(3 * _SCRAPE)
        began = time.time()
        run_load(LoadPlan(phases, seed=7, timeout_s=10.0), address)
        command = ["capacity", "history", "--prometheus", server, f"--slo={SLO * 1000:g}ms", f"--step={_STEP:g}s"]
        begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began + _STEP))
        done = subprocess.run(
            [sys.executable, "-m", "latdoctor", *command, "--since", begin, "-o", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in _ANSWERED:
        raise OperationError(done.stderr.strip()[-300:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SETTINGS)
    parser.add_argument("--reach", type=float, default=0.75, help="highest load, as a share of the limit")
    options = parser.parse_args()
    rows = []
    for name in [options.only] if options.only else SETTINGS:
        log(f"{name}: measuring the limit")
        limit = measured(name, 0).limit
        log(f"{name}: {limit:.1f}/s; load up to {options.reach:.0%} of it")
        found = estimated(name, limit, options.reach)
        low, high = found["interval"]
        said = "at least " if found["history"]["at_least"] else ""
        model = found["model_limit"] or 0.0
        rows.append(
            (
                name,
                f"{limit:.1f}/s",
                f"{said}{found['limit']:.1f}/s ({low:.1f} to {high:.1f})",
                f"{model:.1f}/s ({model / limit - 1:+.0%})",
            )
        )
        log(f"{name}: {'; '.join(found['problems']) or 'no problems'}")
    print("\n".join(markdown(("setting", "measured", f"from history, up to {options.reach:.0%}", "model"), rows)))


if __name__ == "__main__":
    main()
