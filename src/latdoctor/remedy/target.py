"""What is mended: an address that can be changed, and the pages by which one sees whether that helped."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from latdoctor.web.secret import Secret

KINDS = ("reference", "reference-router", "process", "http")


class Target(Struct, frozen=True):
    """As it is journaled: a name, its kind, and where it is changed. Nothing secret."""

    name: str
    kind: str  # one of KINDS
    admin: str = ""  # base URL of what is changed
    pid: int = 0  # of a process on this machine
    started: float = 0.0  # when that process began, in clock ticks after boot: another one may get its number
    allow: tuple[str, ...] = ()  # of http: the URLs that may be changed, as prefixes up to a `/`

    @property
    def key(self) -> str:
        """What two runs must not have at once."""
        return self.admin.rstrip("/") or f"pid {self.pid} of {self.started:.0f}"


@dataclass(frozen=True, slots=True)
class Access:
    """How a target lets us in."""

    target: Target
    token: Secret
