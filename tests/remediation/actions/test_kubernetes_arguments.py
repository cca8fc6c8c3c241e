"""One argument of a container: where it is set, and what is no argument."""

from __future__ import annotations

import pytest

from latdoctor.errors import UsageError
from latdoctor.remediation.actions.kubernetes.arguments import SET_ARGUMENT
from latdoctor.remediation.actions.kubernetes.fields import compact, to_raw
from latdoctor.remediation.change import State

SERVER, SIDECAR = (f"/spec/template/spec/containers/{name}/args" for name in ("server", "sidecar"))


def changed(words: list[str] | None, option: str, value: str, **more: str) -> list[str]:
    state = State({SERVER: None if words is None else compact(words)}, "1")
    (text,) = SET_ARGUMENT.desired_values({"argument": option, "value": value, **more}, state).values()
    found = to_raw("", text)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("words", "option", "expected"),
    [
        (["--port=1", "--max-num-seqs=256"], "--max-num-seqs", ["--port=1", "--max-num-seqs=64"]),
        (["--max-num-seqs", "256", "--port", "1"], "--max-num-seqs", ["--max-num-seqs", "64", "--port", "1"]),
        (["--port=1"], "--max-num-seqs", ["--port=1", "--max-num-seqs=64"]),
        ([], "-n", ["-n=64"]),
        (["--set=a.b=1", "--set=c.d=2"], "--set=a.b", ["--set=a.b=64", "--set=c.d=2"]),
        (["--set=a.b=1", "--set=a.b=2"], "--set=a.b", ["--set=a.b=1", "--set=a.b=64"]),
        (["--max-num-seqs-per-gpu=1"], "--max-num-seqs", ["--max-num-seqs-per-gpu=1", "--max-num-seqs=64"]),
    ],
)
def test_an_argument_is_replaced_where_it_is_and_else_added(words: list[str], option: str, expected: list[str]) -> None:
    assert changed(words, option, "64") == expected


@pytest.mark.parametrize(
    ("option", "value"), [("port", "1"), ("--a b", "1"), ("--a", ""), ("--a", "1 --b=2"), ("", "1")]
)
def test_what_is_no_argument_is_refused(option: str, value: str) -> None:
    with pytest.raises(UsageError, match="no argument of a server"):
        changed(["--port=1"], option, value)


def test_the_arguments_of_an_image_are_not_dropped() -> None:
    with pytest.raises(UsageError, match="those of its image would be dropped"):
        changed(None, "--port", "1")


def test_of_two_containers_one_has_to_be_named() -> None:
    state = State({SERVER: "[]", SIDECAR: "[]"}, "1")
    asked = {"argument": "--port", "value": "1"}
    with pytest.raises(UsageError, match="there are 2 containers"):
        SET_ARGUMENT.desired_values(asked, state)
    assert list(SET_ARGUMENT.desired_values({**asked, "container": "sidecar"}, state)) == [SIDECAR]
