"""Fields of a change as people read them."""

from __future__ import annotations

import json

from latdoctor.remediation.change import Change, Field, Undo, Value
from latdoctor.report.shown_fields import shown_fields


def shown(name: str, before: Value, after: Value) -> list[tuple[str, Value, Value]]:
    change = Change("step", "action", "resource", (Field(name, before, after),), Undo.RESTORE)
    return [(one.name, one.before, one.after) for one in shown_fields([change])]


def test_a_field_of_a_server_is_shown_as_it_is() -> None:
    assert shown("batching.max_wait_ms", 5, 0) == [("batching.max_wait_ms", 5, 0)]


def test_a_field_of_an_object_is_shown_without_its_prefix() -> None:
    assert shown("/spec/replicas", 1, 3) == [("replicas", 1, 3)]
    name = "/spec/template/spec/containers/server/resources/limits/nvidia.com~1gpu"
    assert shown(name, "1", None) == [("containers/server/resources/limits/nvidia.com/gpu", "1", None)]


def template(image: str, **labels: str) -> str:
    containers = [{"name": "proxy", "image": "proxy:1"}, {"name": "server", "image": image, "args": ["a", "b"]}]
    return json.dumps({"metadata": {"labels": labels}, "spec": {"containers": containers}})


def test_of_a_template_only_the_differences_are_shown() -> None:
    before, after = template("chat:2", app="chat"), template("chat:1", app="chat", team="a")
    assert shown("/spec/template", before, after) == [
        ("metadata/labels/team", None, "a"),
        ("containers/server/image", "chat:2", "chat:1"),
    ]


def test_lists_without_names_are_one_value() -> None:
    before, after = json.dumps({"args": ["a"]}), json.dumps({"args": ["a", "b"]})
    assert shown("/spec/template", before, after) == [("args", '["a"]', '["a","b"]')]
