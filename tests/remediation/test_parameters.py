"""Parameters: text becomes a value of the right kind within its range, or a reason; `$name` is a whole value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from latdoctor.errors import UsageError
from latdoctor.remediation.parameters import (
    allowed_values,
    format_parameter,
    parameter_values,
    parse_value,
    substituted,
)
from latdoctor.remediation.playbook import Parameter, ParameterType, Scalar, Step
from latdoctor.remediation.playbook_library import shipped

COUNT = Parameter("count", "integer", 5, 1, 9)
RATE = Parameter("rate", "number", 0.5, 0.0, 10.0)
WAIT = Parameter("wait", "duration", 0.25, 0.01, 60.0)
SHARE = Parameter("share", "share", 0.3, 0.0, 1.0)
KIND = Parameter("kind", "text", "auto", choices=("auto", "on"))
FREE = Parameter("free", "text", "v1")
FLAG = Parameter("flag", "flag", True)
ALL = (COUNT, RATE, WAIT, SHARE, KIND, FREE, FLAG)
STEP = Step("s", "a", "restore", {one.name: f"${one.name}" for one in ALL}, "p.yaml:1")
PLAYBOOK = replace(shipped().find("app.batching.token-budget"), parameters=ALL, parts=(STEP,))

VALUES = [
    (COUNT, "7", 7),
    (COUNT, " 7 ", 7),
    (RATE, "0.25", 0.25),
    (RATE, "1e1", 10.0),
    (WAIT, "250ms", 0.25),
    (WAIT, "1min", 60.0),
    (SHARE, "30%", 0.3),
    (SHARE, "0.3", 0.3),
    (KIND, "on", "on"),
    (FREE, "v2+8", "v2+8"),
    (FLAG, "false", False),
]


@pytest.mark.parametrize(("parameter", "text", "value"), VALUES)
def test_values(parameter: Parameter, text: str, value: Scalar) -> None:
    found = parse_value(parameter, text)
    assert found == value
    assert type(found) is type(value)


REFUSED = [
    (COUNT, "0", "0 is outside the range: must be an integer from 1 to 9"),
    (COUNT, "10", "an integer from 1 to 9"),
    (COUNT, "7.0", "'7.0' is not an integer"),
    (COUNT, "1_0", "is not an integer"),
    (COUNT, "٣", "is not an integer"),
    (COUNT, "9" * 5000, "is not an integer"),
    (RATE, "nan", "is not a quantity"),
    (RATE, "1e999", "is not a finite quantity"),
    (RATE, "5s", "is not a plain number"),
    (WAIT, "5", "is not a duration"),
    (WAIT, "2min", "120s is outside the range: must be a duration from 10ms to 60s"),
    (SHARE, "130%", "is not a share"),
    (KIND, "off", "off is outside the range: must be one of auto, on"),
    (FREE, "", "is not a text of one line"),
    (FREE, "a\nb", "is not a text of one line"),
    (FREE, "\x1b[31mred", "is not a text of one line"),
    (FREE, "x" * 201, "is not a text of one line"),
    (FLAG, "yes", "'yes' is not one of true, false"),
]


@pytest.mark.parametrize(("parameter", "text", "message"), REFUSED)
def test_what_is_refused(parameter: Parameter, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_value(parameter, text)
    assert message in str(caught.value)


RANGES = [
    (COUNT, "an integer from 1 to 9"),
    (replace(COUNT, maximum=None), "an integer of 1 or more"),
    (replace(SHARE, minimum=None), "a share of 100% or less"),
    (WAIT, "a duration from 10ms to 60s"),
    (KIND, "one of auto, on"),
    (FREE, "a text"),
    (FLAG, "true or false"),
]


@pytest.mark.parametrize(("parameter", "message"), RANGES)
def test_allowed_values_text(parameter: Parameter, message: str) -> None:
    assert allowed_values(parameter) == message


def test_unset_parameter_has_its_default() -> None:
    values = parameter_values(PLAYBOOK, {"count": "7"})
    assert values == {one.name: one.default for one in ALL} | {"count": 7}


def test_all_problems_are_reported_together() -> None:
    needed = replace(PLAYBOOK, parameters=(*ALL, Parameter("version", "text")))
    with pytest.raises(UsageError) as caught:
        parameter_values(needed, {"cuont": "7", "wait": "1h", "flag": "yes"})
    for message in ("unknown parameter 'cuont' (known: count", "wait: ", "flag: ", "version must be set: a text"):
        assert message in caught.value.what


def test_references_are_substituted_with_units() -> None:
    assert substituted(STEP, PLAYBOOK, parameter_values(PLAYBOOK, {"free": "$count"})) == {
        "count": "5",
        "rate": "0.5",
        "wait": "250ms",
        "share": "30%",
        "kind": "auto",
        "free": "$count",  # substituted text is not expanded again
        "flag": "true",
    }


def test_literals_are_unchanged() -> None:
    step = replace(STEP, arguments={"a": "token-budget", "b": "0.5"})
    assert substituted(step, PLAYBOOK, parameter_values(PLAYBOOK, {})) == step.arguments


_NUMBERS = st.floats(min_value=0, max_value=1e9, allow_nan=False)
_VALUES = {
    "integer": st.integers(-(10**14), 10**14),
    "number": _NUMBERS,
    "duration": _NUMBERS,
    "share": st.floats(0, 1),
    "text": st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=200),
    "flag": st.booleans(),
}


@given(st.data())
def test_formatted_value_parses_to_the_same_value(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(ParameterType))
    value = data.draw(_VALUES[kind])
    parameter = Parameter("p", kind)
    assert parse_value(parameter, format_parameter(parameter, value)) == value


@given(st.sampled_from(ALL), st.text(max_size=40) | st.from_regex(r"[-+0-9.e]{1,12}(ms|s|%|h)?", fullmatch=True))
def test_any_text_is_a_value_within_the_range_or_refused(parameter: Parameter, text: str) -> None:
    try:
        value = parse_value(parameter, text)
    except ValueError:
        return
    if isinstance(value, str):
        assert not parameter.choices or value in parameter.choices
    else:
        assert (parameter.minimum or 0) <= value <= (parameter.maximum or 1)


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=4))
def test_any_settings_are_values_or_refused(settings: dict[str, str]) -> None:
    try:
        values = parameter_values(PLAYBOOK, settings)
    except UsageError:
        return
    assert values.keys() == {one.name for one in ALL}
