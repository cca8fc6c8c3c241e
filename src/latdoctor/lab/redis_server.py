"""A real Redis server for the session store: its process, its settings, and an operator's connection to it.

It listens on the loopback interface only and needs a password; both are in a file that only this user can read.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta, Struct

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server import parent_watch
from latdoctor.lab.server.supervisor import free_ports

if TYPE_CHECKING:
    import redis

FOLDER_VARIABLE = "LATDOCTOR_REDIS"  # the folder of redis-server; else it is found in PATH
READY_WITHIN = 20.0  # seconds
_CALL_SECONDS = 5.0


class ReplicaSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A replica that receives every write `lag_seconds` late."""

    lag_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0


class RedisSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`policy`: what is evicted above `limit_mib` (0: no limit). With a `replica`, Sentinel promotes it on failure."""

    limit_mib: float = 0.0
    policy: str = "noeviction"
    replica: ReplicaSettings | None = None


def redis_server_path() -> str:
    """The program. Raises UsageError where there is none."""
    found = shutil.which("redis-server", path=os.environ.get(FOLDER_VARIABLE) or None)
    if found is None:
        raise UsageError(
            "there is no redis-server here", next_step=f"install it, or name its folder in {FOLDER_VARIABLE}"
        )
    return found


class RedisControl:
    """The operator's connection to one Redis server. Every method raises OperationError where it does not answer."""

    def __init__(self, host: str, port: int, password: str) -> None:
        self.host = host
        self.port = port
        self.password = password
        self._written = 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def limit(self) -> tuple[int, str]:
        """Its maxmemory in bytes (0: no limit), and what it evicts above it."""
        with self._client() as client:
            found = client.config_get("maxmemory*")
            return int(found["maxmemory"] or 0), str(found["maxmemory-policy"])

    def set_limit(self, limit_bytes: int, policy: str) -> None:
        with self._client() as client:
            client.config_set("maxmemory-policy", policy)
            client.config_set("maxmemory", limit_bytes)

    def used_bytes(self) -> int:
        with self._client() as client:
            return int(client.info("memory")["used_memory"])

    def write_values(self, prefix: str, size: int, count: int, names: int) -> None:
        """Writes `count` values of `size` bytes, as another application would, `names` different ones at most."""
        with self._client() as client:
            pipeline = client.pipeline(transaction=False)
            for _ in range(count):
                self._written = (self._written + 1) % names
                pipeline.set(f"{prefix}{self._written}", "x" * size)
            pipeline.execute()

    def delete_values(self, prefix: str, names: int) -> None:
        """Deletes what `write_values` wrote."""
        with self._client() as client:
            client.delete(*(f"{prefix}{number}" for number in range(names)))

    def flush(self) -> None:
        """Everything it held is gone, as after a restart."""
        with self._client() as client:
            client.flushall()

    def in_step(self) -> bool:
        """Whether this replica has received what its primary held when it connected."""
        with self._client() as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    def demote(self) -> None:
        """It becomes a replica of a primary that is gone: it serves what it has, and takes no writes."""
        (nowhere,) = free_ports(1)
        with self._client() as client:
            client.replicaof("127.0.0.1", nowhere)

    def promote(self) -> None:
        """It is a primary again."""
        with self._client() as client:
            client.replicaof("NO", "ONE")

    def client(self) -> redis.Redis:
        """A context manager; its methods raise what redis-py raises."""
        import redis

        return redis.Redis(
            host=self.host, port=self.port, password=self.password or None, socket_timeout=_CALL_SECONDS,
            protocol=2, decode_responses=False,
        )  # fmt: skip

    @contextmanager
    def _client(self) -> Iterator[redis.Redis]:
        import redis

        try:
            with redis.Redis(
                host=self.host, port=self.port, password=self.password or None, socket_timeout=_CALL_SECONDS,
                protocol=2, decode_responses=True,
            ) as client:  # fmt: skip
                yield client
        except redis.RedisError as error:
            raise OperationError(f"Redis at {self.address} failed: {error}") from error


class RedisProcess(RedisControl, ABC):
    """A process of redis-server on a free loopback port; a context manager that ends it."""

    arguments: tuple[str, ...] = ()  # after its configuration file

    def __init__(self, password: str = "") -> None:
        (port,) = free_ports(1)
        super().__init__("127.0.0.1", port, password or secrets.token_urlsafe(24))
        self._folder = tempfile.TemporaryDirectory(prefix="latdoctor-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Raises OperationError where it was not started."""
        if self._process is None:
            raise OperationError("redis-server was not started")
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    def start(self) -> None:
        """Starts it, empty; returns when it answers. Raises OperationError, UsageError."""
        program = redis_server_path()
        config = Path(self._folder.name) / "redis.conf"
        config.touch(mode=0o600)
        common = ("bind 127.0.0.1", f"port {self.port}", f"requirepass {self.password}", f"dir {self._folder.name}")
        config.write_text("\n".join((*common, "loglevel warning", *self._config())) + "\n")
        self._process = subprocess.Popen(  # noqa: S603 - the program of the operator's own choice
            parent_watch.watched(program, str(config), *self.arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_libraries(Path(program))},
            start_new_session=True,
        )
        self._wait_ready()

    def kill(self) -> None:
        """SIGKILL: what it held is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @abstractmethod
    def _config(self) -> tuple[str, ...]:
        """Lines of its configuration, beside its address and password."""

    def _wait_ready(self) -> None:
        import redis

        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if not self.running:
                raise OperationError("redis-server ended before it was ready")
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.RedisError:
                time.sleep(0.02)
        raise OperationError(f"redis-server was not ready within {READY_WITHIN:g} s")


class RedisServer(RedisProcess):
    """A Redis server that keeps nothing on disk; a replica of the one at `replica_of` (HOST:PORT) if that is named."""

    def __init__(self, settings: RedisSettings | None = None, password: str = "", replica_of: str = "") -> None:
        super().__init__(password)
        self.settings = settings or RedisSettings()
        self._replica_of = replica_of.replace(":", " ")

    def _config(self) -> tuple[str, ...]:
        return (
            *('save ""', "appendonly no", "enable-debug-command no"),
            f"maxmemory {int(self.settings.limit_mib * (1 << 20))}",
            f"maxmemory-policy {self.settings.policy}",
            *(f"masterauth {self.password}", "repl-diskless-sync-delay 0"),
            *((f"replicaof {self._replica_of}",) if self._replica_of else ()),
        )


def _libraries(program: Path) -> dict[str, str]:
    """Where an unpacked package has its libraries beside its programs, the variable that names their folder."""
    folders = [
        str(folder) for folder in program.parent.parent.glob("lib/*-linux-gnu") if program.parent.parent != Path("/usr")
    ]
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {}
