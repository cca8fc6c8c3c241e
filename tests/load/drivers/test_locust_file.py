"""The locustfile: the plan is data in it, never code; and what Locust does not keep of it is said."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.load.arrivals import Constant, Gamma, Poisson, Replay
from latdoctor.load.drivers.exported import ExportedLoad, decode
from latdoctor.load.drivers.locust_file import locust_file
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.request_template import RequestTemplate

PLAN = LoadPlan((LoadPhase("calm", 2, Poisson(5)), LoadPhase("rush", 2, Constant(9.5))), seed=4, slo_s=0.25)


class Contents(ast.NodeVisitor):
    """The text in `decode(…)`, which is taken out of the tree."""

    def __init__(self, file: str) -> None:
        self.text = ""
        self.tree = ast.parse(file)
        self.visit(self.tree)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "decode":
            (argument,) = node.args
            assert isinstance(argument, ast.Constant)
            self.text, argument.value = argument.value, ""


@settings(max_examples=80, deadline=None)
@given(path=st.text(max_size=20).map(lambda text: "/" + text), body=st.text('"\\\n\r{}%$#é😀a\x00\u2028', max_size=60))
def test_what_is_sent_is_data_and_never_code(path: str, body: str) -> None:
    request = RequestTemplate(path, body)
    found = Contents(locust_file(PLAN, request=request))
    assert decode(found.text) == ExportedLoad(PLAN, 1.0, request)
    plain = Contents(locust_file(PLAN, request=RequestTemplate("/", "")))
    assert ast.dump(found.tree) == ast.dump(plain.tree)


def test_a_plan_survives_with_its_factor() -> None:
    assert decode(Contents(locust_file(PLAN, times=20.0)).text) == ExportedLoad(PLAN, 20.0)


def test_recorded_times_are_not_multiplied() -> None:
    with pytest.raises(UsageError, match="recorded arrivals"):
        locust_file(LoadPlan((LoadPhase("only", 2, Replay((0.0,))),)), times=2.0)


def test_a_credential_of_the_environment_is_not_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD_AUTHORIZATION", "Bearer s3cret-of-mine")
    assert "s3cret" not in locust_file(PLAN)


def test_only_a_multiplied_load_differs_from_that_of_lab_load() -> None:
    gammas = LoadPlan((LoadPhase("only", 2, Gamma(5, 2.0)),))
    assert "Not as with" not in locust_file(gammas)
    assert "less bursty" in locust_file(gammas, times=3.0)
    assert "less bursty" not in locust_file(PLAN, times=3.0)
