"""An API server that refuses, fails or hangs: a request without an answer is a gap with its code, never "healthy"."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from latdoctor.cluster_api import ApiError, ClusterApi, Listed, Login
from latdoctor.evidence.bundle import Bundle
from latdoctor.gap_code import GapCode
from tests.collectors.kubernetes.observing import bundle_of, diagnosis_of

pytest.importorskip("kubernetes")
Reply = tuple[int, bytes] | tuple[int, bytes, Mapping[str, str]]  # the status, the body, and further headers
Route = Callable[[str], Reply | None]
GROUPS = {"apps": ["v1"], "autoscaling": ["v2", "v1"], "policy": ["v1"]}
CHAT = {
    "metadata": {"name": "chat", "namespace": "prod"},
    "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "chat"}}},
    "status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1},
}


def as_json(body: object, status: int = 200) -> Reply:
    return status, json.dumps(body).encode()


def healthy(path: str) -> Reply:
    """A namespace with a Deployment that has no Pod."""
    place = path.partition("?")[0]
    if place == "/apis":
        groups = [{"name": name, "versions": [{"version": one} for one in all_]} for name, all_ in GROUPS.items()]
        return as_json({"groups": groups})
    if place == "/api/v1/namespaces/prod":
        return as_json({"metadata": {"name": "prod"}, "status": {"phase": "Active"}})
    if place.endswith("/deployments/chat"):
        return as_json(CHAT)
    if place.endswith("/chat"):
        return as_json({"message": "not found"}, 404)
    return as_json({"items": [], "metadata": {}})


@contextmanager
def listening(route: Route, folder: Path, ahead: float = 0.0) -> Iterator[Path]:
    """The kubeconfig of a server that answers as `route` does, else as a healthy one. `ahead`: its clock, seconds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, *headers = route(self.path) or healthy(self.path)
            self.send_response(status)
            for name, value in (headers[0] if headers else {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(time.time() + ahead, usegmt=True)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kubeconfig(folder, f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


def kubeconfig(folder: Path, address: str) -> Path:
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "west",
        "contexts": [{"name": "west", "context": {"cluster": "west", "user": "me"}}],
        "clusters": [{"name": "west", "cluster": {"server": address}}],
        "users": [{"name": "me", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def observed(route: Route, folder: Path) -> Bundle:
    with listening(route, folder) as path:
        return bundle_of(path, "prod/chat", timeout=2.0)


def refusing(part: str, status: int) -> Route:
    """Of all paths that contain `part`."""
    return lambda path: as_json({"message": f"no {part}"}, status) if part in path else None


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, GapCode.UNAUTHENTICATED),
        (403, GapCode.PERMISSION),
        (410, GapCode.EXPIRED),
        (429, GapCode.OVERLOADED),
        (500, GapCode.REFUSED),
        (404, GapCode.ABSENT),
    ],
)
def test_a_refused_list_is_a_gap_and_the_others_are_read(tmp_path: Path, status: int, code: GapCode) -> None:
    bundle = observed(refusing("horizontalpodautoscalers", status), tmp_path)
    (gap,) = bundle.gaps
    assert gap.code == code
    assert "hpa.limited" in gap.signals
    assert {one.source.rpartition("/")[2] for one in bundle.artifacts} == {"scope", "deployments"}


def test_a_forbidden_list_names_the_right_and_the_role_that_has_it(tmp_path: Path) -> None:
    (gap,) = observed(refusing("horizontalpodautoscalers", 403), tmp_path).gaps
    assert "may not list horizontalpodautoscalers.autoscaling" in gap.reason
    assert "latdoctor-read-only" in gap.next_step


@pytest.mark.parametrize("part", ["/pods", "/events", "/nodes", "/replicasets"])
def test_what_could_not_be_read_is_unknown_and_not_clear(tmp_path: Path, part: str) -> None:
    route: Route = lambda path: as_json({"message": "no"}, 403) if f"{part}?" in path else None  # noqa: E731
    diagnosis = diagnosis_of(observed(route, tmp_path))
    assert diagnosis.verdict.level == "inconclusive"
    status = {check.id: check.status for check in diagnosis.checks}
    if part == "/events":
        assert status["probe-restarts-container"] == status["replicas-not-placed"] == "not-evaluated"
    else:
        assert status["probe-restarts-container"] == "clear"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (as_json({"message": "Unauthorized"}, 401), GapCode.UNAUTHENTICATED),
        ((200, b"<html>a proxy's page</html>"), GapCode.UNREADABLE),
    ],
    ids=["expired-token", "no-api-server"],
)
def test_a_login_that_no_request_gets_past_is_one_gap(tmp_path: Path, reply: Reply, code: GapCode) -> None:
    bundle = observed(lambda path: reply, tmp_path)
    (gap,) = bundle.gaps
    assert (gap.code, bundle.artifacts) == (code, ())
    assert "pod.ready" in gap.signals


@pytest.mark.parametrize("item", [1, None, "x", {}, {"metadata": []}, {"metadata": {"name": "a"}, "status": 3}])
@pytest.mark.parametrize("part", ["pods", "events", "nodes", "replicasets", "resourcequotas"])
def test_objects_of_another_shape_are_a_gap(tmp_path: Path, part: str, item: object) -> None:
    bundle = observed(lambda path: as_json({"items": [item]}) if f"/{part}?" in path else None, tmp_path)
    diagnosis = diagnosis_of(bundle)
    assert diagnosis.verdict.level == "inconclusive"


@pytest.mark.parametrize(
    "item", [b"1", b"{}", b'{"metadata": []}', b'{"metadata": {"name": 1}, "spec": "x", "status": []}']
)
@pytest.mark.parametrize("part", ["pods", "events", "deployments", "replicasets", "controllerrevisions"])
def test_a_damaged_artifact_is_a_gap(tmp_path: Path, part: str, item: bytes) -> None:
    bundle = observed(lambda path: None, tmp_path)
    (scope, *_) = bundle.artifacts
    damaged = replace(scope, name=f"{part}.json", source=f"prod/chat/{part}", content=b'{"items": [' + item + b"]}")
    diagnosis = diagnosis_of(replace(bundle, artifacts=(scope, damaged)))
    assert diagnosis.verdict.level == "inconclusive"


def test_an_api_server_that_is_down_is_one_gap(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        bundle = bundle_of(kubeconfig(tmp_path, f"http://127.0.0.1:{taken.getsockname()[1]}"), "prod/chat")
    (gap,) = bundle.gaps
    assert (gap.code, bundle.artifacts) == (GapCode.UNREACHABLE, ())


def test_a_list_that_hangs_is_a_timeout_and_the_others_are_read(tmp_path: Path) -> None:
    ended = threading.Event()

    def hang(path: str) -> Reply | None:
        if "/events?" in path:
            ended.wait(30)
        return None

    with listening(hang, tmp_path) as path:
        bundle = bundle_of(path, "prod/chat", timeout=0.5)
        ended.set()
    assert {gap.code for gap in bundle.gaps} == {GapCode.TIMEOUT}
    assert any(one.source.endswith("/deployments") for one in bundle.artifacts)


def test_an_overloaded_server_is_asked_once_more(tmp_path: Path) -> None:
    asked: list[str] = []

    def busy_at_first(path: str) -> Reply | None:
        asked.extend([path] if "/resourcequotas?" in path else [])
        return as_json({"message": "later"}, 429) if "/resourcequotas?" in path and len(asked) == 1 else None

    assert observed(busy_at_first, tmp_path).gaps == ()
    assert len(asked) == 2


def busy(times: int, seconds: str, asked: list[str]) -> Route:
    """A server that refuses the list of quotas so many times, and wants to be asked again after so many seconds."""

    def route(path: str) -> Reply | None:
        if "/resourcequotas?" not in path:
            return None
        asked.append(path)
        later = json.dumps({"message": "too many requests"}).encode(), {"Retry-After": seconds}
        return (429, *later) if len(asked) <= times else None

    return route


def test_a_server_that_says_when_is_asked_again_then(tmp_path: Path) -> None:
    asked: list[str] = []
    assert observed(busy(2, "0", asked), tmp_path).gaps == ()
    assert len(asked) == 3


@pytest.mark.parametrize(("times", "seconds", "requests"), [(9, "0", 3), (1, "600", 1)])
def test_a_server_that_stays_overloaded_or_wants_too_long_is_a_gap(
    tmp_path: Path, times: int, seconds: str, requests: int
) -> None:
    asked: list[str] = []
    (gap,) = observed(busy(times, seconds, asked), tmp_path).gaps
    assert gap.code == GapCode.OVERLOADED
    assert len(asked) == requests


PODS = "/api/v1/namespaces/prod/pods"


def listed(version: str) -> Reply:
    return as_json({"metadata": {"resourceVersion": version}, "items": [{"metadata": {"name": f"of-{version}"}}]})


def gone() -> Reply:
    return as_json({"message": "too old resource version", "code": 410}, 410)


def expired() -> Reply:
    """As the API server ends a watch that has begun."""
    status = {"kind": "Status", "code": 410, "message": "too old resource version"}
    return 200, json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


@pytest.mark.parametrize(
    "failure",
    [gone(), expired(), (429, b"{}", {"Retry-After": "0"}), (200, b"")],
    ids=["410", "expired-event", "429", "ended"],
)
def test_a_watch_that_breaks_off_goes_on_with_what_is_there_now(tmp_path: Path, failure: Reply) -> None:
    """A watch that ends by itself is resumed; all others begin with a new list."""
    lists, watches, stop = 0, 0, threading.Event()

    def route(path: str) -> Reply | None:
        nonlocal lists, watches
        if "watch=true" not in path:
            lists += 1
            return listed(str(lists))
        watches += 1
        if watches == 1:
            return failure
        added = {"type": "ADDED", "object": {"metadata": {"name": "new", "resourceVersion": "9"}}}
        return 200, json.dumps(added).encode() + b"\n"

    with listening(route, tmp_path) as path:
        api = ClusterApi(Login(path))
        names: list[str] = []
        for update in api.follow(PODS, stop):
            objects = update.objects if isinstance(update, Listed) else (update.object,)
            names += [one["metadata"]["name"] for one in objects]
            if names[-1] == "new":
                stop.set()
        api.close()
    assert names == (["of-1", "new"] if failure == (200, b"") else ["of-1", "of-2", "new"])


def test_a_watch_that_may_not_be_made_is_an_error(tmp_path: Path) -> None:
    with listening(lambda path: as_json({"message": "no"}, 403), tmp_path) as path:
        api = ClusterApi(Login(path))
        with pytest.raises(ApiError) as refused:
            list(api.follow(PODS, threading.Event()))
        api.close()
    assert refused.value.status == 403


def test_a_list_that_expires_between_pages_is_kept_in_part(tmp_path: Path) -> None:
    quota = {"metadata": {"name": "gpus"}, "status": {"hard": {"pods": "4"}, "used": {"pods": "4"}}}

    def pages(path: str) -> Reply | None:
        if "/resourcequotas?" not in path:
            return None
        if "continue=" in path:
            return as_json({"message": "too old"}, 410)
        return as_json({"items": [quota], "metadata": {"continue": "more"}})

    bundle = observed(pages, tmp_path)
    (gap,) = bundle.gaps
    assert gap.code == GapCode.TOO_LARGE
    assert any(one.source.endswith("/resourcequotas") for one in bundle.artifacts)


@pytest.mark.parametrize("served", [["v2beta2", "v1"], ["v2"]])
def test_the_newest_version_that_the_server_has_is_read(tmp_path: Path, served: list[str]) -> None:
    asked: list[str] = []

    def route(path: str) -> Reply | None:
        asked.extend([path] if "autoscaling" in path else [])
        if path == "/apis":
            versions = [{"version": one} for one in served]
            return as_json({"groups": [{"name": "apps", "versions": [{"version": "v1"}]},
                                       {"name": "autoscaling", "versions": versions}]})  # fmt: skip
        return None

    observed(route, tmp_path)
    assert [path.split("/")[3] for path in asked] == [served[0]]
