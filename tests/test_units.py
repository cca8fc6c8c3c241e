"""Quantities: parsing, storage in base units, formatting."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor import units


@pytest.mark.parametrize(
    ("text", "value", "dimension"),
    [
        ("1ms", 1e-3, "time"),
        ("10 µs", 1e-5, "time"),
        ("10us", 1e-5, "time"),
        ("5min", 300.0, "time"),
        ("5m", 300.0, "time"),
        ("24h", 86400.0, "time"),
        ("5GiB", 5 * 2**30, "bytes"),
        ("5GB", 5e9, "bytes"),
        ("80%", 0.8, "ratio"),
        (" 80 % ", 0.8, "ratio"),
        ("0.5ratio", 0.5, "ratio"),
        ("1000/s", 1000.0, "rate"),
        ("6/min", 0.1, "rate"),
        ("1.98GHz", 1.98e9, "frequency"),
        ("85°C", 85.0, "temperature"),
        ("700W", 700.0, "power"),
        ("64GB/s", 64e9, "throughput"),
        ("200", 200.0, "count"),
        ("-3", -3.0, "count"),
        (".5", 0.5, "count"),
        ("1e3", 1000.0, "count"),
        ("1E-2s", 0.01, "time"),
    ],
)
def test_parse(text: str, value: float, dimension: str) -> None:
    quantity = units.parse_quantity(text)
    assert quantity.value == pytest.approx(value)
    assert quantity.dimension == dimension
    assert quantity.text == text.strip()


@pytest.mark.parametrize(
    "text",
    ["", " ", "ms", "1 parsec", "1ms 2ms", "1,5s", "1 000", "nan", "inf", "1e999", "1e308GiB", "--1", "1.2.3", "٣s"],
)
def test_what_is_no_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|unknown unit"):
        units.parse_quantity(text)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_share, "90%", 0.9),
        (units.parse_share, "0.9", 0.9),
        (units.parse_share, "0", 0.0),
        (units.parse_share, "100%", 1.0),
        (units.parse_duration, "500ms", 0.5),
        (units.parse_duration, "0s", 0.0),
        (units.parse_span, "500ms", 0.5),
    ],
)
def test_shares_and_durations(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (units.parse_share, "101%"),
        (units.parse_share, "1.1"),
        (units.parse_share, "-1%"),
        (units.parse_share, "0.5s"),
        (units.parse_duration, "10"),
        (units.parse_span, "0s"),
        (units.parse_span, "-1s"),
        (units.parse_duration, "10%"),
        (units.parse_duration, "-1s"),
    ],
)
def test_shares_and_durations_refuse(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse(text)


@pytest.mark.parametrize(
    ("value", "dimension", "shown"),
    [
        (0.0, "time", "0 s"),
        (0.0031, "time", "3.1 ms"),
        (1.5, "time", "1.5 s"),
        (0.9996, "time", "1 s"),
        (90.0, "time", "90 s"),
        (300.0, "time", "5 min"),
        (10800.0, "time", "3 h"),
        (2.5e-7, "time", "250 ns"),
        (-0.25, "time", "-250 ms"),
        (0.0, "bytes", "0 B"),
        (0.0, "frequency", "0 Hz"),
        (0.0, "throughput", "0 B/s"),
        (1536.0, "bytes", "1.5 KiB"),
        (80 * 2.0**30, "bytes", "80 GiB"),
        (1.98e9, "frequency", "1.98 GHz"),
        (2e3, "throughput", "2 kB/s"),
        (0.853, "ratio", "85.3 %"),
        (61.0, "rate", "61/s"),
        (0.05, "rate", "3/min"),
        (0.0, "rate", "0/s"),
        (85.0, "temperature", "85 °C"),
        (699.7, "power", "700 W"),
        (12345.0, "count", "12 345"),
        (7.0, "count", "7"),
        (float("nan"), "time", "unknown"),
        (float("inf"), "ratio", "unknown"),
    ],
)
def test_format(value: float, dimension: str, shown: str) -> None:
    assert units.format_value(value, dimension) == shown


DIMENSIONS = ("time", "bytes", "frequency", "throughput", "ratio", "rate", "temperature", "power", "count")


@given(
    st.sampled_from(DIMENSIONS),
    st.floats(min_value=1e-9, max_value=1e14, allow_nan=False),
    st.booleans(),
)
def test_what_is_shown_parses_back_to_the_value(dimension: str, size: float, negative: bool) -> None:
    value = -size if negative else size
    shown = units.format_value(value, dimension)
    back = units.parse_quantity(shown.replace(" ", ""))
    assert back.dimension == dimension
    # three significant digits, so half a unit of the third at most
    assert math.isclose(back.value, value, rel_tol=0.00501)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100))
def test_a_written_number_keeps_its_value_exactly(value: float) -> None:
    assert units.parse_quantity(f"{value!r}s").value == value


@given(st.integers(min_value=0, max_value=10**6), st.sampled_from([("%", -2), ("ms", -3), ("µs", -6), ("GHz", 9)]))
def test_a_converted_number_is_the_nearest_to_what_was_written(number: int, unit: tuple[str, int]) -> None:
    name, power = unit
    assert units.parse_quantity(f"{number}{name}").value == float(f"{number}e{power}")


@given(st.text())
def test_any_text_parses_or_is_a_value_error(text: str) -> None:
    try:
        quantity = units.parse_quantity(text)
    except ValueError:
        return
    assert math.isfinite(quantity.value)


@pytest.mark.parametrize("name", ["ms", "GiB", "%", "count", "", "text", "kB/s"])
def test_units_by_name(name: str) -> None:
    assert units.unit(name).name == name


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(ValueError, match="'furlong'"):
        units.unit("furlong")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("80%", "80 %"), ("3C", "3 °C"), ("500ms", "500 ms"), ("16/min", "16/min"), ("0.01", "0.01"), ("cpu", "cpu")],
)
def test_literals_are_printed_as_values_are(text: str, shown: str) -> None:
    assert units.spaced(text) == shown
