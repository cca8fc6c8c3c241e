"""What a server is sent: recognised by its own answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from latdoctor.errors import UsageError
from latdoctor.load.mix import RequestContent
from latdoctor.load.target import Target, TargetKind, plain, recognise

ASKED = RequestContent("short-text", 3, 0, None)


@contextmanager
def answering(answers: Mapping[str, object]) -> Iterator[str]:
    """A server with these answers by path; 404 for others, 401 where the answer is None."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            known = self.path in answers
            status = 404 if not known else 401 if answers[self.path] is None else 200
            content = json.dumps(answers.get(self.path)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815 — the names that http.server uses

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — its name there
            """Nothing: the test's own output stays readable."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sent(target: Target) -> dict[str, object]:
    assert target.request is not None
    content: dict[str, object] = json.loads(target.request.content("", ASKED))
    return content


def test_an_openai_server_is_sent_completions_of_its_first_model() -> None:
    with answering({"/v1/models": {"data": [{"id": "tiny"}, {"id": "other"}]}}) as address:
        target = recognise(address, 8)
    assert target.kind is TargetKind.OPENAI
    content = sent(target)
    assert (content["model"], content["max_tokens"]) == ("tiny", 8)
    assert len(str(content["prompt"]).split()) == 3


def test_a_triton_is_sent_zeros_of_the_shape_of_its_ready_model() -> None:
    answers = {
        "/v2": {"name": "triton"},
        "/v2/repository/index": [{"name": "broken", "state": "UNAVAILABLE"}, {"name": "add", "state": "READY"}],
        "/v2/models/add": {
            "inputs": [
                {"name": "A", "datatype": "FP32", "shape": [-1, 4]},
                {"name": "B", "datatype": "BYTES", "shape": [1]},
            ]
        },
    }
    with answering(answers) as address:
        target = recognise(address, 8)
    assert target.kind is TargetKind.TRITON
    assert target.request is not None
    assert target.request.path == "/v2/models/add/infer"
    assert sent(target)["inputs"] == [
        {"name": "A", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]},
        {"name": "B", "datatype": "BYTES", "shape": [1], "data": [""]},
    ]


def test_a_named_model_is_measured_instead_of_the_first() -> None:
    with answering({"/v1/models": {"data": [{"id": "tiny"}, {"id": "other"}]}}) as address:
        assert sent(recognise(address, 8, "other"))["model"] == "other"
        with pytest.raises(UsageError, match="its models: tiny, other"):
            recognise(address, 8, "third")


def test_a_triton_that_does_not_list_its_models_is_measured_by_a_name() -> None:
    answers = {"/v2": {}, "/v2/models/m": {"inputs": [{"name": "A", "datatype": "FP32", "shape": [-1, 1]}]}}
    with answering(answers) as address:
        assert recognise(address, 8, "m").kind is TargetKind.TRITON
        with pytest.raises(UsageError, match=r"does not list its models.*--model NAME"):
            recognise(address, 8)


def test_the_reference_server_is_recognised_without_its_token() -> None:
    with answering({"/admin/config": None}) as address:
        assert recognise(address, 8) == Target(address, TargetKind.REFERENCE)


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({}, "not recognised"),
        ({"/v1/models": {"data": []}}, "serves no model"),
        ({"/v1/models": []}, "serves no model"),
        ({"/v2": {}, "/v2/repository/index": []}, "no model is ready"),
        ({"/v2": {}, "/v2/repository/index": [{"name": "m", "state": "READY"}]}, "inputs of m are not known"),
        (
            {
                "/v2": {},
                "/v2/repository/index": [{"name": "m", "state": "READY"}],
                "/v2/models/m": {"inputs": [{"name": "A", "datatype": "FP32", "shape": [3, 1024, 1024]}]},
            },
            "3145728 numbers",
        ),
    ],
)
def test_what_answers_otherwise_is_refused(answers: Mapping[str, object], says: str) -> None:
    with answering(answers) as address, pytest.raises(UsageError, match=says):
        recognise(address, 8)


def test_any_other_server_is_sent_what_is_given() -> None:
    target = plain("http://127.0.0.1:1", "/predict", '{"text": "$PROMPT"}')
    assert len(str(sent(target)["text"]).split()) == 3
    with pytest.raises(UsageError, match="slash"):
        plain("http://127.0.0.1:1", "predict", "{}")
