"""Whether a load fitted to a log has the gaps, turns and times to think of that log, and a replay its times.

    python -m bench.load_users [--seconds 40]                       # the log of a reference server under users
    python -m bench.load_users --no-server --trace FILE [--trace FILE]

Of a trace the fitted plan runs in virtual time against a server that answers at once. Traces: Azure's LLM inference
traces (CSV with TIMESTAMP and ContextTokens; no sessions) and Mooncake's (JSON lines with timestamp and hash_ids; a
request belongs to the session whose last prompt it begins with). Distances are those of Kolmogorov and Smirnov, of two
samples (scipy.stats.ks_2samp).
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from latdoctor.cli.lab_load_recorded import read_recording
from latdoctor.lab.child_process import ChildProcess
from latdoctor.lab.server.supervisor import free_ports
from latdoctor.load import machine_state
from latdoctor.load.arrivals import Poisson
from latdoctor.load.distributions import Geometric, LogNormal
from latdoctor.load.mix import Mix
from latdoctor.load.openloop import OpenLoop
from latdoctor.load.outcome import Reply
from latdoctor.load.plan import LoadPhase, LoadPlan, schedule
from latdoctor.load.process import run_load
from latdoctor.load.recording.plan_fit import fit_plan
from latdoctor.load.recording.replay_plan import replay_plan
from latdoctor.load.recording.requests import RecordedRequest, Recording, sessions_of, think_times
from latdoctor.load.users import Users
from tests.load.virtual import virtually

USERS = Users(turns=Geometric(4), think_s=LogNormal(1.0, 0.8))
RATE = 4.0  # users per second
SPEED = 2.0
_START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()  # of traces that count from zero


class Shape(Struct, frozen=True):
    """The samples that are compared; times in seconds."""

    gaps: list[float]
    turns: list[float]
    think: list[float]


def shape(recording: Recording, times: float = 1.0) -> Shape:
    """`times`: the factor of all times."""
    sessions = sessions_of(recording.requests)
    gaps = [(later.at - sooner.at) * times for sooner, later in pairwise(recording.requests)]
    think = [gap * times for gap in think_times(sessions)[0]]
    return Shape(gaps, [float(len(one.turns)) for one in sessions], think)


def compare(name: str, log: Shape, load: Shape) -> None:
    from scipy.stats import ks_2samp

    print(name)
    for what in ("gaps", "turns", "think"):
        one, two = getattr(log, what), getattr(load, what)
        if not (one and two) or (what == "turns" and max(*one, *two) == 1):
            print(f"  {what:<6} no sessions")
            continue
        found = ks_2samp(one, two)
        means = sum(one) / len(one), sum(two) / len(two)
        print(
            f"  {what:<6} KS {found.statistic:.3f} (p {found.pvalue:.2g}), mean {means[0]:.3g} and {means[1]:.3g}, "
            f"{len(one)} and {len(two)} values"
        )


class Instant:
    """A server that answers at once."""

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        return Reply("200")


def simulated(plan: LoadPlan) -> Recording:
    """What `plan` sends in virtual time."""
    planned = schedule(plan)

    async def play(clock: Callable[[], float]) -> OpenLoop:
        run = OpenLoop(plan, planned, Instant(), clock)
        await run.run()
        return run

    run = virtually(play)
    sent = sorted((*planned, *run.added), key=lambda one: one.at)
    requests = (
        RecordedRequest(one.at, session="" if one.ask.session is None else str(one.ask.session)) for one in sent
    )
    return Recording(tuple(requests), plan.seconds)


def of_trace(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "requests.jsonl"
        lines = _azure(path) if path.suffix == ".csv" else _mooncake(path)
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        _, recording = read_recording(log)
    fitted = fit_plan(recording)
    names = ", ".join(type(phase.arrivals).__name__.lower() for phase in fitted.phases)
    print(f"{path.name}: {len(recording.requests)} requests in {recording.seconds:.0f} s; phases: {names}")
    for note in fitted.notes:
        print(f"  not in the log: {note.text}")
    plan = msgspec.structs.replace(fitted.plan, max_in_flight=20_000)
    compare("fitted, in virtual time", shape(recording), shape(simulated(plan)))


def _azure(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            time = f"{row['TIMESTAMP'].strip()[:26].replace(' ', 'T')}Z"
            yield {"time": time, "status": 200, "path": "/", "input_tokens": int(row["ContextTokens"])}


def _mooncake(path: Path) -> Iterator[dict[str, Any]]:
    """The session of a request is that of the longest prefix of its prompt, in blocks, that was a prompt before."""
    known: dict[tuple[int, ...], int] = {}
    with path.open() as file:
        for number, line in enumerate(file):
            row = json.loads(line)
            blocks = tuple(row["hash_ids"])
            prefixes = (blocks[:length] for length in range(len(blocks), 1, -1))
            session = next((known[one] for one in prefixes if one in known), number)
            known[blocks[:-1] if len(blocks) > 2 else blocks] = session  # the last block is not full
            time = datetime.fromtimestamp(_START + row["timestamp"] / 1000, UTC).isoformat(timespec="milliseconds")
            counted = {"session_id": f"s{session}", "input_tokens": row["input_length"]}
            yield {"time": time, "status": 200, "path": "/", **counted}


@contextmanager
def served(log: Path) -> Iterator[str]:
    """The address of a reference server that writes `log`."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    arguments = ["lab", "serve", "--port", str(port), "--access-log", str(log)]
    with ChildProcess("the server", "latdoctor", arguments, {"OMP_NUM_THREADS": "1"}) as process:
        process.wait_answers(f"{address}/readyz")
        yield address


def sent(plan: LoadPlan, log: Path) -> Recording:
    """What the reference server logged of `plan`."""
    with served(log) as address:
        result = run_load(plan, address)
    late, counts = result.generator.late_p99 or 0.0, result.total.counts
    print(
        f"  {log.stem}: {counts.answered} of {counts.requests} answered, late P99 {late * 1000:.1f} ms, "
        f"{result.sessions or 'no users'}"
    )
    return read_recording(log)[1]


def of_server(seconds: float) -> None:
    phase = LoadPhase("users", seconds, Poisson(RATE), Mix(audio_share=0, long_share=0.05), USERS)
    with tempfile.TemporaryDirectory() as folder:
        original = sent(LoadPlan((phase,), seed=1), Path(folder) / "original.jsonl")
        again = sent(LoadPlan((phase,), seed=2), Path(folder) / "again.jsonl")
        plan = fit_plan(original).plan
        fitted = sent(msgspec.structs.replace(plan, seed=3), Path(folder) / "fitted.jsonl")
        replay = sent(replay_plan(original, SPEED, 50_000).plan, Path(folder) / "replay.jsonl")
    wanted = shape(original)
    compare("the same users with another seed (what chance alone does)", wanted, shape(again))
    compare("fitted to the log", wanted, shape(fitted))
    compare(f"replayed at {SPEED:g} times the speed, its times multiplied by it", wanted, shape(replay, SPEED))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, action="append", default=[])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--no-server", action="store_true")
    options = parser.parse_args(arguments)
    print(f"machine: {machine_state.state()}")
    for path in options.trace:
        of_trace(path)
    if not options.no_server:
        of_server(options.seconds)


if __name__ == "__main__":
    main()
