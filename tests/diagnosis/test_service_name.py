"""What the diagnosed service is called where its target is only an address."""

from __future__ import annotations

import pytest

from latdoctor.diagnosis.service_name import service_name
from latdoctor.evidence.model import Evidence, Subject

MODEL, OTHER, THIRD = (f"model/{name}@10.2.0.7:8002" for name in ("intent", "org/llm", "rank"))


def _evidence(*subjects: str, services: tuple[tuple[str, str], ...] = ()) -> Evidence:
    return Evidence(subjects=tuple(Subject(name) for name in subjects), services=services)


SHOP = ("server/a:8000", "shop")
CASES = [
    ("10.2.0.7:8002", _evidence(MODEL), "intent (10.2.0.7:8002)"),
    ("10.2.0.7:8002", _evidence(), "10.2.0.7:8002"),
    ("10.2.0.7:8002 and 1 more", _evidence(MODEL, OTHER), "intent, org/llm (10.2.0.7:8002 and 1 more)"),
    ("[::1]:8002", _evidence(MODEL, OTHER, THIRD), "intent, org/llm and 1 more ([::1]:8002)"),
    ("checkout-bot", _evidence(MODEL), "checkout-bot"),
    ("access.log", _evidence(MODEL), "access.log"),
    ("prom:9090", _evidence(services=(SHOP,)), "shop (a:8000)"),
    ("prom.example.com/x", _evidence(MODEL, services=(SHOP,)), "intent (shop, a:8000)"),
    ("prom:9090", _evidence(OTHER, services=(SHOP, ("server/b:1", "shop"))), "org/llm (shop, 2 instances)"),
    ("shop", _evidence(OTHER, services=(SHOP,)), "shop"),
]


@pytest.mark.parametrize(("target", "evidence", "name"), CASES)
def test_a_service(target: str, evidence: Evidence, name: str) -> None:
    assert service_name(target, evidence) == name
