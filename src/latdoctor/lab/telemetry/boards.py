"""The GPUs that the made machines have. Figures are those of the vendor's data sheets and of `nvidia-smi -q`."""

from __future__ import annotations

from dataclasses import dataclass

MHZ, MIB, GIB = 1e6, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Board:
    """One model of GPU. Clocks in MHz, power in W, temperatures in °C, memory in MiB.

    `slowdown` is where the hardware cuts the clocks and `target` where the driver begins to. Newer boards
    (`tells_margin`) tell only how far they are from the first. `light` boards power down when idle: they fall to P8 and
    their PCIe link to generation 1.
    """

    name: str
    memory: int
    clock_max: int
    clock_idle: int
    power_limit: float
    power_idle: float
    slowdown: float
    target: float
    generation: int
    counts: tuple[int, ...]  # how many of them stand in one machine
    links: int = 0  # NVLinks
    tells_margin: bool = False
    remaps_rows: bool = True
    light: bool = False
    idle_reasons: int = 0x1
    has_mig: bool = False
    has_ecc: bool = True


H100 = Board(
    name="NVIDIA H100 80GB HBM3",
    memory=81559,
    clock_max=1980,
    clock_idle=345,
    power_limit=700,
    power_idle=70,
    slowdown=89,
    target=87,
    generation=5,
    counts=(4, 8),
    links=18,
    tells_margin=True,
    has_mig=True,
)
A100 = Board(
    name="NVIDIA A100-SXM4-80GB",
    memory=81920,
    clock_max=1410,
    clock_idle=210,
    power_limit=400,
    power_idle=62,
    slowdown=89,
    target=85,
    generation=4,
    counts=(4, 8),
    links=12,
    has_mig=True,
)
A10 = Board(
    name="NVIDIA A10",
    memory=23028,
    clock_max=1695,
    clock_idle=210,
    power_limit=150,
    power_idle=21,
    slowdown=95,
    target=88,
    generation=4,
    counts=(1, 2, 4),
    light=True,
)
T4 = Board(
    name="Tesla T4",
    memory=15360,
    clock_max=1590,
    clock_idle=300,
    power_limit=70,
    power_idle=10,
    slowdown=93,
    target=85,
    generation=3,
    counts=(1, 2, 4),
    remaps_rows=False,
    light=True,
)
# A card of workstations: its power cap bit stays on while it idles.
RTX4080 = Board(
    name="NVIDIA GeForce RTX 4080 SUPER",
    memory=16376,
    clock_max=3105,
    clock_idle=210,
    power_limit=320,
    power_idle=13,
    slowdown=90,
    target=83,
    generation=4,
    counts=(1, 2),
    tells_margin=True,
    remaps_rows=False,
    light=True,
    idle_reasons=0x5,
    has_ecc=False,
)

SERVED = (H100, A100, A10, T4)
LINKED = (H100, A100)
