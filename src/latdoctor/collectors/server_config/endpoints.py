"""Where a server answers about its configuration: documented ports of the host of its metrics page.

Only GET requests, only for kinds of servers that the page proves, and credentials of the page's address go nowhere
else: an API on another port is asked without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

from latdoctor.collectors.server_config.configurations import RAY_SERVE, TORCHSERVE, TRITON, ConfigurationKind
from latdoctor.dialects.metrics_page_model import MetricsPage
from latdoctor.http.safe_address import is_loopback

MAX_MODELS = 32  # that are asked for, those in use


@dataclass(frozen=True, slots=True)
class ConfigEndpoint:
    """The API of one kind of server (`dialect`: its id).

    `port_step`: its port is that far from the metrics page's (Triton: 8000 for 8002); `port`: the documented one,
    where the page's says nothing about it. `per_model`: `path` is asked for each used model, the label `label` of
    `used` that has a value other than zero. `hint`: what to do where it does not answer.
    """

    dialect: str
    kind: ConfigurationKind
    path: str
    hint: str
    port_step: int = 0
    port: int | None = None
    used: tuple[str, ...] = ()
    label: str = ""

    @property
    def per_model(self) -> bool:
        return bool(self.label)


ENDPOINTS = (
    ConfigEndpoint(
        "triton",
        TRITON,
        "/v2/models/{model}/config",
        "save it: curl HOST:8000/v2/models/MODEL/config > config.json, and pass config.json too",
        port_step=-2,
        used=("nv_inference_request_success", "nv_inference_request_failure", "nv_inference_pending_request_count"),
        label="model",
    ),
    ConfigEndpoint(
        "torchserve",
        TORCHSERVE,
        "/models/{model}",
        "save it: curl HOST:8081/models/MODEL > model.json (with its token, if it needs one), and pass model.json too",
        port_step=-1,
        used=("ts_inference_requests_total",),
        label="model_name",
    ),
    ConfigEndpoint(
        "ray-serve",
        RAY_SERVE,
        "/api/serve/applications/",
        "save it: curl HEAD:8265/api/serve/applications/ > serve.json, and pass serve.json too",
        port=8265,
    ),
)


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """One request: its address, and the same without credentials for people."""

    url: str
    display: str
    endpoint: ConfigEndpoint
    loopback: bool


def requests_for(page_url: str, page: MetricsPage, dialects: Iterable[str]) -> Sequence[ConfigRequest]:
    """The requests that show the configuration behind a metrics page; at most MAX_MODELS for one endpoint."""
    known = set(dialects)
    found: list[ConfigRequest] = []
    for endpoint in (one for one in ENDPOINTS if one.dialect in known):
        paths = [endpoint.path]
        if endpoint.per_model:
            paths = [endpoint.path.format(model=quote(name, safe="")) for name in used_models(endpoint, page)]
        found.extend(_request(page_url, endpoint, path) for path in paths[:MAX_MODELS])
    return found


def used_models(endpoint: ConfigEndpoint, page: MetricsPage) -> Sequence[str]:
    """The models with a request on the page, in its order; those never used need no diagnosis."""
    samples = (one for name in endpoint.used for one in page.samples.get(name, ()))
    return list(dict.fromkeys(name for one in samples if one.value and (name := one.label(endpoint.label))))


def _request(page_url: str, endpoint: ConfigEndpoint, path: str) -> ConfigRequest:
    parts = urlsplit(page_url)
    port = endpoint.port
    if port is None and parts.port is not None:
        port = parts.port + endpoint.port_step
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    place = host if port is None else f"{host}:{port}"
    # Without a port the API is behind the same gateway, at the address for which the credentials are.
    netloc = parts.netloc if port is None or port == parts.port else place
    return ConfigRequest(
        url=urlunsplit((parts.scheme, netloc, path, "", "")),
        display=urlunsplit((parts.scheme, place, path, "", "")),
        endpoint=endpoint,
        loopback=is_loopback(parts.hostname or ""),
    )
