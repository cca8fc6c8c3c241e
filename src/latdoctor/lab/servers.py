"""The processes of a scenario: the reference server, several behind a router, the dependency, and fault proxies."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct

from latdoctor.lab.admin import Admin
from latdoctor.lab.child import Child
from latdoctor.lab.dependency_service import StoreSettings
from latdoctor.lab.server.config import ServerConfig, patched
from latdoctor.lab.server.guard import VARIABLE
from latdoctor.lab.server.replicas import free_ports


class _Serving:
    """`latdoctor lab serve` on a free loopback port, with a token of its own."""

    _title = "the server"

    def __init__(self, config: ServerConfig, *arguments: str) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = secrets.token_urlsafe(24)
        self.admin = Admin(self.url, self.token)
        self._folder = tempfile.TemporaryDirectory(prefix="latdoctor-lab-")
        self._arguments = arguments
        self._started_with = config
        self._child = self._started(config)

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_ready(self) -> None:
        """Raises OperationError where the server ends or is not ready in time."""
        self._child.wait_answers(f"{self.url}/readyz")

    def _started(self, config: ServerConfig) -> Child:
        settings = Path(self._folder.name) / "server.yaml"
        settings.write_bytes(msgspec.json.encode(config))  # JSON is YAML
        arguments = ["lab", "serve", "--port", str(self.port), "--config", str(settings), *self._arguments]
        return Child(self._title, "latdoctor", arguments, {VARIABLE: self.token, "OMP_NUM_THREADS": "1"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.__exit__(None, None, None)
        self._folder.cleanup()


class ServerProcess(_Serving):
    """One server. Leave it as a context: the process never outlives it."""

    def __init__(self, config: ServerConfig, *, faults: bool = True) -> None:
        super().__init__(config, *(["--fault-agent"] if faults else []))

    def restart(self, knobs: Mapping[str, Any]) -> None:
        """Ends the process and starts another on the same port, with `knobs` put in; returns when it is ready.

        Raises OperationError where it does not come up, UsageError for bad knobs.
        """
        config = patched(self._started_with, knobs, strict=False)
        self._child.__exit__(None, None, None)
        self._child = self._started(config)
        self.wait_ready()

    def config(self) -> tuple[ServerConfig, str]:
        """The present configuration and its ETag. Raises OperationError."""
        return self.admin.config()

    def configure(self, patch: Mapping[str, Any]) -> None:
        """Turns live knobs, against the version that was read. Raises OperationError."""
        self.admin.configure(patch)


class Standing(Struct, frozen=True):
    """What the router's admin interface says of a replica."""

    name: str
    url: str
    state: str
    pid: int


class RouterProcess(_Serving):
    """A router and its replicas. Leave it as a context: none of the processes outlives it."""

    _title = "the router"

    def __init__(self, config: ServerConfig, replicas: int) -> None:
        super().__init__(config, "--replicas", str(replicas), "--fault-agent")

    def replicas(self) -> tuple[Standing, ...]:
        """Raises OperationError."""
        _, body = self.admin.ask("GET", "/admin/replicas")
        return msgspec.json.decode(body, type=tuple[Standing, ...])

    def replica_admin(self, url: str) -> Admin:
        return Admin(url, self.token)


class ProxyProcess:
    """`latdoctor lab proxy` in front of `host:port`."""

    def __init__(self, to: str) -> None:
        port, control = free_ports(2)
        token = secrets.token_urlsafe(24)
        self.url = f"http://127.0.0.1:{port}"
        self.admin = Admin(f"http://127.0.0.1:{control}", token)
        arguments = ["lab", "proxy", "--to", to, "--port", str(port), "--control-port", str(control)]
        self.child = Child("the fault proxy", "latdoctor", arguments, {VARIABLE: token})

    def wait_ready(self) -> None:
        """Raises OperationError."""
        self.child.wait_answers(f"{self.admin.url}/toxics", self.admin.headers)


class DependencyProcess:
    """The service that the server asks for each request."""

    def __init__(self, settings: StoreSettings) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        arguments = [
            *("--port", str(self.port), "--ttl", str(settings.ttl)),
            *("--max-keys", str(settings.max_keys), "--miss-seconds", str(settings.miss_seconds)),
        ]
        self.child = Child("the dependency", "latdoctor.lab.dependency_service", arguments)

    def wait_ready(self) -> None:
        """Raises OperationError."""
        self.child.wait_answers(f"{self.url}/healthz")
