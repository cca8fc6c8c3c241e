"""Feeds a parser with damaged input: any bytes must give a result or a typed error within LONGEST seconds.

    python -m bench.fuzz torch_trace --seconds 60
    python -m bench.fuzz torch_trace --seeds FOLDER    # begins with the files in it, beside the built-in ones

With atheris installed (pip install atheris) coverage guides it; without, the seeds are damaged at random, which finds
less. An input on which a parser fails is written to the current folder, and the exit code is 1. Pass that file as the
only seed to reproduce the failure.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType

from bench.harness import log

try:
    import atheris
except ImportError:
    atheris = None

LONGEST = 10  # s for one input
MOST = 4 << 30  # bytes of address space
TRACE = b"""{"traceEvents": [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.5, "dur": 5,
"args": {"External id": 1}}, {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 8, "dur": 50, "args": {"device": 0}},
{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "ts": 90, "dur": 5,
"args": {"bytes": 64}}], "baseTimeNanoseconds": 1760000000000000000}"""


@dataclass(frozen=True)
class Parser:
    """`parse` takes the bytes and may raise SourceError; `seeds` are the first inputs."""

    parse: Callable[[bytes], object]
    seeds: Sequence[bytes] = (b"",)


def collected_by(module: str, name: str, *seeds: bytes) -> Parser:
    """The parser of the collector in latdoctor.collectors.MODULE, given one artifact called `name`."""

    def parse(data: bytes) -> object:
        from importlib import import_module

        from latdoctor.errors import SourceError
        from latdoctor.evidence.bundle import Artifact

        collector = import_module(f"latdoctor.collectors.{module}").COLLECTOR
        try:
            return collector.parse((Artifact(f"{collector.name}/{name}", collector.name, "fuzz", name, 1.0, data),))
        except SourceError as error:
            return error

    return Parser(parse, seeds or (b"",))


# To add a parser: one line.
PARSERS = {
    "torch_trace": collected_by("torch_trace", "fuzz.json", TRACE, b"[" + TRACE[17:-43]),
    "logs": collected_by("logs", "fuzz.log", b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"),
    "access_log": collected_by(
        "access_log", "fuzz.log", b'{"exit": "2026-01-31T02:00:00.5Z", "seconds": 0.1, "status": 200}\n'
    ),
    "nsight": collected_by(
        "nsight", "fuzz.csv", b"Time (%),Total Time (ns),Num Calls,Name\n65.1,1417580893,293,cuMemAlloc_v2\n"
    ),
    "tensorrt": collected_by(
        "tensorrt", "fuzz.json", b'{"Layers": [{"Name": "a", "LayerType": "Reformat", "Origin": "QDQ"}]}'
    ),
    "torch_memory": collected_by("torch_memory", "fuzz.pickle", b"\x80\x04}\x94(\x8c\x08segments\x94]\x94u."),
    "prometheus": collected_by("prometheus", "fuzz.prom", b"# TYPE ref_queue_depth gauge\nref_queue_depth 3\n"),
}


def damaged(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """A seed with a few bytes changed, doubled, dropped or taken from another."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        at, length = chance.randint(0, len(data)), chance.randint(0, 40)
        kind = chance.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            data[at:at] = data[at : at + length] * chance.randint(1, 50)
        elif kind == 2:
            del data[at : at + length]
        else:
            other = chance.choice(seeds)
            start = chance.randint(0, len(other))
            data[at:at] = other[start : start + length]
    return bytes(data)


def watched(parser: Parser) -> Callable[[bytes], None]:
    """The parser with a time limit: a slower input raises TimeoutError."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"an input took more than {LONGEST} s")

    signal.signal(signal.SIGALRM, too_long)

    def run(data: bytes) -> None:
        signal.alarm(LONGEST)
        try:
            parser.parse(data)
        finally:
            signal.alarm(0)

    return run


def at_random(run: Callable[[bytes], None], seeds: Sequence[bytes], seconds: float, seed: int, folder: Path) -> int:
    chance, until, count = random.Random(seed), time.monotonic() + seconds, 0
    while count < len(seeds) or time.monotonic() < until:
        data = seeds[count] if count < len(seeds) else damaged(seeds, chance)
        count += 1
        try:
            run(data)
        except Exception:  # noqa: BLE001 — any other exception is a failure of the parser
            traceback.print_exc()
            broke = folder / f"fuzz-{seed}-{count}.bin"
            broke.write_bytes(data)
            log(f"{broke}: the parser failed on input {count} of seed {seed}")
            return 1
    log(f"no failure on {count} inputs in {seconds:g} s (atheris is not installed: damaged at random)")
    return 0


def with_coverage(fuzzer: ModuleType, parser: Parser, seeds: Sequence[bytes], seconds: float, corpus: Path) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(seeds):
        (corpus / f"seed-{index}").write_bytes(seed)
    with fuzzer.instrument_imports(include=["latdoctor"]):
        parser.parse(seeds[0])
    options = [f"-max_total_time={int(seconds)}", f"-timeout={LONGEST}", f"-rss_limit_mb={MOST >> 20}"]
    fuzzer.Setup([sys.argv[0], str(corpus), *options], parser.parse)
    fuzzer.Fuzz()  # ends the process


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parser", choices=sorted(PARSERS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=Path, action="append", default=[], help="a file or a folder of them")
    parser.add_argument(
        "--corpus", type=Path, default=Path(".cache/fuzz"), help="the folder for the inputs that atheris finds"
    )
    options = parser.parse_args()
    chosen = PARSERS[options.parser]
    files = [file for path in options.seeds for file in ([path] if path.is_file() else sorted(path.rglob("*.*")))]
    seeds = [*chosen.seeds, *(file.read_bytes() for file in files if file.is_file())]
    if atheris is not None:
        with_coverage(atheris, chosen, seeds, options.seconds, options.corpus / options.parser)
    return at_random(watched(chosen), seeds, options.seconds, options.seed, Path())


if __name__ == "__main__":
    sys.exit(main())
