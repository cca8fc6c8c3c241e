"""What is measured: a server's address and the request that it is sent, recognised by the server's own answers."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.http.client import HttpClient, HttpRequest, HttpResponse
from latdoctor.load.request_template import PROMPT, RequestTemplate
from latdoctor.load.transport import PATH

_SECONDS = 5.0
_ZEROS = 16_384  # numbers of an input: more would measure the network


class TargetKind(StrEnum):
    """Which protocol a target has."""

    REFERENCE = "reference"  # the server of the lab
    OPENAI = "openai"  # /v1/completions: vLLM, SGLang, llama.cpp, TGI, Dynamo
    TRITON = "triton"  # the KServe protocol, version 2
    PLAIN = "plain"  # any other: its path and body are given


class Target(Struct, frozen=True):
    """A server under measurement. `request`: None for the reference server, whose requests the mix describes."""

    address: str
    kind: TargetKind
    request: RequestTemplate | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}, POST {self.request.path if self.request else PATH}"


def recognise(address: str, output_tokens: int, model: str = "") -> Target:
    """The target at `address`. `output_tokens`: of each answer of a language model. `model`: else its first one.

    Raises UsageError where its answers say nothing, with the options that do.
    """
    with HttpClient() as client:
        if (models := _json(client, f"{address}/v1/models")) is not None:
            return _openai(address, models, output_tokens, model)
        if _json(client, f"{address}/v2") is not None:
            return _triton(client, address, model or _first_ready(client, address))
        if _answers(client, f"{address}/admin/config"):
            return Target(address, TargetKind.REFERENCE)
    raise UsageError(
        "not recognised: neither /v1/models nor /v2 answers",
        where=address,
        next_step="say what it is sent: --path /predict --body FILE",
    )


def plain(address: str, path: str, body: str) -> Target:
    """A target whose request is given; `$PROMPT` in the body is replaced by words. Raises UsageError."""
    if not path.startswith("/"):
        raise UsageError(f"must begin with a slash (got {path!r})", where="--path")
    return Target(address, TargetKind.PLAIN, RequestTemplate(path, body))


def _get(client: HttpClient, url: str) -> HttpResponse | None:
    found = client.send(HttpRequest("GET", url, {}, reads=True), _SECONDS)
    return found if isinstance(found, HttpResponse) else None


def _answers(client: HttpClient, url: str) -> bool:
    """Whether there is such a page, although perhaps not without a token."""
    found = _get(client, url)
    return found is not None and found.status in (200, 401, 403)


def _json(client: HttpClient, url: str) -> Any:
    """The answer; None where it is none."""
    found = _get(client, url)
    if found is None or found.status != 200:
        return None
    try:
        return json.loads(found.body)
    except ValueError:
        return None


def _openai(address: str, models: Any, output_tokens: int, model: str) -> Target:
    names = [one.get("id") for one in models.get("data", ())] if isinstance(models, dict) else []
    if not names or not isinstance(names[0], str):
        raise UsageError("serves no model", where=f"{address}/v1/models")
    if model and model not in names:
        raise UsageError(f"serves no model {model!r}; its models: {', '.join(map(str, names))}", where=address)
    body = {"model": model or names[0], "prompt": PROMPT, "max_tokens": output_tokens, "ignore_eos": True}
    return Target(address, TargetKind.OPENAI, RequestTemplate("/v1/completions", json.dumps(body)))


def _first_ready(client: HttpClient, address: str) -> str:
    """The first model that is ready. Raises UsageError, also where the server does not list its models."""
    index = client.send(HttpRequest("POST", f"{address}/v2/repository/index", {}, b"{}", reads=True), _SECONDS)
    if not isinstance(index, HttpResponse) or index.status != 200:
        raise UsageError("does not list its models", where=f"{address}/v2", next_step="name one: --model NAME")
    ready = [one["name"] for one in json.loads(index.body) if one.get("state") == "READY"]
    if not ready:
        raise UsageError("no model is ready", where=f"{address}/v2", next_step="load one, or name it: --model NAME")
    return str(ready[0])


def _triton(client: HttpClient, address: str, model: str) -> Target:
    """Inputs of zeros for `model`, with one in each dimension that may vary. Raises UsageError."""
    name = quote(model, safe="")
    metadata = _json(client, f"{address}/v2/models/{name}") or {}
    inputs = [_zeros(one) for one in metadata.get("inputs", ())]
    if not inputs:
        raise UsageError(f"the inputs of {model} are not known", where=address, next_step="--path … --body FILE")
    return Target(
        address, TargetKind.TRITON, RequestTemplate(f"/v2/models/{name}/infer", json.dumps({"inputs": inputs}))
    )


def _zeros(described: dict[str, Any]) -> dict[str, Any]:
    """An input of the described name, type and shape. Raises UsageError where it would be very large."""
    shape = [1 if int(size) < 0 else int(size) for size in described["shape"]]
    count = 1
    for size in shape:
        count *= size
    if count > _ZEROS:
        raise UsageError(f"the input {described['name']} has {count} numbers", next_step="--path … --body FILE")
    zero: object = "" if described["datatype"] == "BYTES" else False if described["datatype"] == "BOOL" else 0
    return {"name": described["name"], "datatype": described["datatype"], "shape": shape, "data": [zero] * count}
