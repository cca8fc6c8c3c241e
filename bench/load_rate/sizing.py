"""What a large rate needs, from the rate that one core keeps. Arithmetic, not a measurement of a large run."""

from __future__ import annotations

import math

from msgspec import Struct

from bench.load_rate.trials import Trial

USED = 0.6  # of the rate that a core keeps: the rest is for bursts, larger bodies, TLS and the machine's own work
CORES = 16  # of one machine, of which one is left to the kernel's network work and the operating system
_HEADERS = 66.0  # bytes of Ethernet, IP and TCP (with timestamps) in a segment; about one each way for a small request
_ACKNOWLEDGED = 2.0  # segments each way for one request: its data, and the acknowledgement of the answer


class Sizing(Struct, frozen=True):
    """`in_flight`: requests at a time by Little's law; each holds a connection, and so a local port."""

    generator: str
    per_core: float
    cores: int
    machines: int
    in_flight: float
    gbit_out: float
    gbit_in: float


def sizing(one: Trial, rate: float, latency: float) -> Sizing:
    """What `rate` needs of the generator of this trial, where an answer takes `latency` seconds on average."""
    per_core = one.achieved * USED
    cores = math.ceil(rate / per_core)
    overhead = _HEADERS * _ACKNOWLEDGED
    return Sizing(
        generator=one.generator,
        per_core=per_core,
        cores=cores,
        machines=math.ceil(cores / (CORES - 1)),
        in_flight=rate * latency,
        gbit_out=rate * (one.bytes_in + overhead) * 8 / 1e9,
        gbit_in=rate * (one.bytes_out + overhead) * 8 / 1e9,
    )
