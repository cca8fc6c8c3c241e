"""Quantities with units: parsed from rules and the command line, printed for people.

Every signal has one unit; its values are stored in the base of that unit's dimension (seconds, bytes, fractions,
events per second, …). A literal such as `1ms` or `80%` is converted to the base when it is parsed.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass

_NUMBER = re.compile(r"([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as the catalogue names it: its dimension, and the factor to that dimension's base."""

    name: str
    dimension: str
    factor: float


def _units(dimension: str, **factors: float) -> dict[str, Unit]:
    return {name: Unit(name, dimension, factor) for name, factor in factors.items()}


_UNITS: dict[str, Unit] = {
    **_units("time", ns=1e-9, us=1e-6, ms=1e-3, s=1.0, min=60.0, h=3600.0, d=86400.0),
    "µs": Unit("µs", "time", 1e-6),
    "m": Unit("m", "time", 60.0),
    **_units("bytes", B=1.0, kB=1e3, MB=1e6, GB=1e9, KiB=2**10, MiB=2**20, GiB=2**30, TiB=2**40),
    **_units("frequency", Hz=1.0, kHz=1e3, MHz=1e6, GHz=1e9),
    **_units("power", W=1.0, mW=1e-3, kW=1e3),
    **_units("temperature", C=1.0),
    "°C": Unit("°C", "temperature", 1.0),
    "%": Unit("%", "ratio", 0.01),
    "ratio": Unit("ratio", "ratio", 1.0),
    "/s": Unit("/s", "rate", 1.0),
    "/min": Unit("/min", "rate", 1 / 60),
    "/h": Unit("/h", "rate", 1 / 3600),
    "B/s": Unit("B/s", "throughput", 1.0),
    "kB/s": Unit("kB/s", "throughput", 1e3),
    "MB/s": Unit("MB/s", "throughput", 1e6),
    "GB/s": Unit("GB/s", "throughput", 1e9),
    "count": Unit("count", "count", 1.0),
    "": Unit("", "count", 1.0),
    "text": Unit("text", "text", 1.0),
}

# What a bare number may stand for: `kernels > 40`, `dip_p < 0.01`, `fragmentation < 0.5`.
BARE_DIMENSIONS = frozenset({"count", "ratio"})


@dataclass(frozen=True, slots=True)
class Quantity:
    """A literal in base units; `text` is what the author wrote."""

    value: float
    dimension: str
    text: str


def unit(name: str) -> Unit:
    """The unit called `name`. Raises ValueError for an unknown one."""
    try:
        return _UNITS[name]
    except KeyError:
        raise ValueError(f"unknown unit {name!r}") from None


def parse_quantity(text: str) -> Quantity:
    """`1ms`, `5GiB`, `80%`, `1000/s`, `200` → a Quantity in base units. Raises ValueError."""
    match = _NUMBER.match(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a quantity (a number with a unit, such as 1ms, 5GiB, 80%, 1000/s)")
    found = unit(match[2])
    value = float(match[1])
    if found.factor != 1:
        value = float(f"{value * found.factor:.15g}")  # 95 % is 0.95, not 0.9500000000000001
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite quantity")
    return Quantity(value, found.dimension, text.strip())


def spaced(text: str) -> str:
    """A literal as values are printed: `80%` → `80 %`, `3C` → `3 °C`; what is no quantity stays as it is."""
    match = _NUMBER.fullmatch(text.strip())
    if not match or not match[2] or match[2].startswith("/"):
        return text
    return f"{match[1]} {'°C' if match[2] == 'C' else match[2]}"


def parse_share(text: str) -> float:
    """A share written as `90%` or `0.9` → 0.9, within 0..1. Raises ValueError."""
    quantity = parse_quantity(text)
    if quantity.dimension not in BARE_DIMENSIONS or not 0 <= quantity.value <= 1:
        raise ValueError(f"{text!r} is not a share between 0% and 100%")
    return quantity.value


def parse_duration(text: str) -> float:
    """`10s`, `500ms`, `5min` → seconds. Raises ValueError."""
    quantity = parse_quantity(text)
    if quantity.dimension != "time" or quantity.value < 0:
        raise ValueError(f"{text!r} is not a duration (such as 500ms, 10s, 5min)")
    return quantity.value


def parse_span(text: str) -> float:
    """A duration that is longer than nothing, as a promised latency is → seconds. Raises ValueError."""
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} is not a time above 0 s")
    return seconds


_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_HERTZ = ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz"))
_THROUGHPUT = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))
_SCALES = {"bytes": _BYTES, "frequency": _HERTZ, "throughput": _THROUGHPUT}


def format_value(value: float, dimension: str) -> str:
    """A base value for a person's eye: three significant digits and the unit that fits."""
    if not math.isfinite(value):
        return "unknown"
    if dimension == "time":
        return _format_time(value)
    if dimension in _SCALES:
        return _scaled(value, _SCALES[dimension])
    if dimension == "ratio":
        return f"{_digits(value * 100)} %"
    if dimension == "rate":
        return f"{_digits(value)}/s" if value == 0 or abs(value) >= 0.1 else f"{_digits(value * 60)}/min"
    suffix = {"temperature": " °C", "power": " W"}.get(dimension, "")
    return f"{_digits(value)}{suffix}"


def _format_time(value: float) -> str:
    if abs(value) >= 7200:
        return f"{_digits(value / 3600)} h"
    if abs(value) >= 120:
        return f"{_digits(value / 60)} min"
    return _scaled(value, _TIME)


_DAYS = 48  # hours from which an elapsed time is in days


def elapsed(seconds: float) -> str:
    """`0:42`, `12:03`, `1:02:03`, `-1:10`, `3 d 4 h`: rounded down, so that a deadline is not shown early."""
    whole = int(abs(seconds))
    hours, rest = divmod(whole, 3600)
    if hours >= _DAYS:
        text = f"{hours // 24} d {hours % 24} h"
        return f"-{text}" if seconds < 0 else text
    text = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"-{text}" if seconds < 0 else text


def clock_time(time: float) -> str:
    """The time of day of unix seconds: `02:19:20 UTC`."""
    try:
        return datetime.datetime.fromtimestamp(time, datetime.UTC).strftime("%H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # a source may contain any number
        return "an impossible time"


def percent(probability: float) -> str:
    """A probability for the eye: never a flat 0 or 100, which no diagnosis earns."""
    if probability > 0.99:
        return "> 99 %"
    return "< 1 %" if probability < 0.01 else f"{probability:.0%}".replace("%", " %")


def _scaled(value: float, scale: tuple[tuple[float, str], ...]) -> str:
    for factor, name in scale:
        if abs(value) >= factor * 0.9995:  # what rounds to one of a unit is shown in it: 1 s, not 1 000 ms
            return f"{_digits(value / factor)} {name}"
    if value == 0:
        return f"0 {next(name for factor, name in scale if factor == 1.0)}"
    factor, name = scale[-1]
    return f"{_digits(value / factor)} {name}"


def _digits(value: float) -> str:
    """Three significant digits; thousands with a thin gap; never scientific for common sizes."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 1e15 or magnitude < 1e-4:
        return f"{value:.2e}"
    decimals = max(0, 2 - math.floor(math.log10(magnitude)))
    shown = f"{value:,.{decimals}f}".replace(",", " ")
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
