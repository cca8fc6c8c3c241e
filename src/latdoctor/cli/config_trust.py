"""Trust in a configuration of the working directory, as git's `safe.directory`.

Such a file may have arrived with a cloned repository or an archive, so that its owner proves nothing: it could send
the content of a readable file to any address. Unless it names only this machine's own addresses and files beside it,
it is used only after `latdoctor trust`, which remembers its content (SHA-256) by its path.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import UsageError
from latdoctor.http.safe_address import mask_credentials
from latdoctor.notify.receiver_config import Receiver, ReceiverKind
from latdoctor.regular_file import read_with_status, written_by_others
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    from latdoctor.cli.config_file import TargetSettings

STORE = "trusted.json"
MAX_BYTES = 1 << 20
_SHOWN = 3  # of each kind, in a message of one line
# Written out: what any parser of addresses could understand otherwise is not a loopback address.
_LOOPBACK = re.compile(r"(?:https?://)?(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?(?:/[^\\\s]*)?")


class UntrustedConfigError(UsageError):
    """The configuration of the working directory is not used without the user's consent."""


class TrustState(StrEnum):
    """Whether the content of a configuration is the one that was trusted."""

    TRUSTED = "trusted"
    CHANGED = "changed since"
    MISSING = "no longer there"
    UNKNOWN = "not trusted"


@dataclass(frozen=True, slots=True)
class Grants:
    """What a configuration makes latdoctor do beyond reading this machine and the files beside it."""

    contacts: tuple[str, ...] = ()  # addresses of other machines
    credentials: tuple[str, ...] = ()  # files whose content is sent to an address
    changes: tuple[str, ...] = ()  # addresses that remediate may change, with the token of the environment
    notifies: tuple[str, ...] = ()  # receivers, which get all notifications and a key of the environment
    reads: tuple[str, ...] = ()  # files outside its folder

    def __bool__(self) -> bool:
        return any((self.contacts, self.credentials, self.changes, self.notifies, self.reads))

    def lines(self, most: int | None = None) -> list[str]:
        """One phrase for each kind; with at most `most` names each."""
        kinds = (
            ("contact", self.contacts),
            ("send the credentials in", self.credentials),
            ("change", self.changes),
            ("notify", self.notifies),
            ("read files outside its folder:", self.reads),
        )
        return [f"{verb} {_listed(names, most)}" for verb, names in kinds if names]


def _listed(names: tuple[str, ...], most: int | None) -> str:
    shown = [_shown(name) for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _shown(name: str) -> str:
    """A name without credentials. Where that left something out, an address names the host that would be contacted."""
    shown = mask_credentials(clean(name, 200))
    try:
        host = urlsplit(name).hostname if shown != name else ""
    except ValueError:  # it is no address, and contacts nothing
        host = ""
    return f"{shown} (host {clean(host, 260)})" if host else shown


def grants(targets: Iterable[TargetSettings], receivers: Iterable[Receiver], folder: Path) -> Grants:
    """What these targets and receivers of a file in `folder` need consent for."""
    targets, receivers = tuple(targets), tuple(receivers)
    addresses = [url for one in targets for url in (*one.server, one.prometheus) if url]
    clusters = [
        f"the cluster of {one.kube_context or 'the kubeconfig'} for {name}" for one in targets for name in one.kube
    ]
    tokens = [path for one in targets for path in (one.admin_token, one.prometheus_auth)]
    keys = [path for one in receivers for path in (one.url_file, one.key_file)]
    files = [path for one in targets for path in (*one.files, one.baseline, one.prometheus_ca)]
    files += [one.authorities for one in receivers]
    inside = folder.resolve()
    return Grants(
        contacts=_unique([*(url for url in addresses if not _LOOPBACK.fullmatch(url.strip())), *clusters]),
        credentials=_unique([*(str(path) for path in (*tokens, *keys) if path), *_environment_credentials(targets)]),
        changes=_unique(url for one in targets for url in (*one.admin, *one.allow)),
        notifies=_unique(map(_receiver, receivers)),
        reads=_unique(str(path) for path in files if path and not path.resolve().is_relative_to(inside)),
    )


def _environment_credentials(targets: Iterable[TargetSettings]) -> list[str]:
    """The set variables whose credentials would be sent to a Prometheus that the file names, loopback or not."""
    from latdoctor.collectors.promql.client import AUTH, AUTH_FILE

    if not any(one.prometheus and not one.prometheus_auth for one in targets):
        return []
    return [variable for variable in (AUTH, AUTH_FILE) if os.environ.get(variable)]


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _receiver(receiver: Receiver) -> str:
    public = receiver.kind is not ReceiverKind.SLACK and receiver.url_file is None
    return f"{receiver.name} ({receiver.kind}{f', {receiver.base}' if public and receiver.base else ''})"


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def require_trust(path: Path, raw: bytes, status: os.stat_result, wants: Grants, store: TrustStore) -> None:
    """Raises UntrustedConfigError where the file needs the user's consent and has none for this content."""
    place = path.absolute()
    foreign = written_by_others(status)
    if not foreign and (why := written_by_others(place.parent.stat())):
        foreign = f"is in a folder that {why}"
    if not (foreign or wants):
        return
    state = store.state(place, digest(raw))
    if state is TrustState.TRUSTED:
        return
    what = "has changed since it was trusted" if state is TrustState.CHANGED else "is not trusted"
    reasons = [
        *([f"it {foreign}"] if foreign else []),
        *([f"it would {'; '.join(wants.lines(_SHOWN))}"] if wants else []),
    ]
    raise UntrustedConfigError(
        f"{what}, so nothing of it was used: {', and '.join(reasons)}",
        where=str(place),
        next_step="read the file, then: latdoctor trust",
    )


class _Stored(Struct, frozen=True):
    """The content of the store: the SHA-256 of each trusted file by its path."""

    files: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The trusted configurations, in a file that only the user can write."""

    path: Path

    def all(self) -> Mapping[str, str]:
        """The SHA-256 of each trusted file by its path. Raises UsageError for a store that others could write."""
        try:
            raw, status = read_with_status(self.path, MAX_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", where=str(self.path)) from error
        if why := written_by_others(status):
            step = f"if its content is yours: chmod 600 {self.path}; else remove it"
            raise UsageError(f"{why}, so it is not believed", where=str(self.path), next_step=step)
        try:
            return msgspec.json.decode(raw, type=_Stored).files
        except UNDECODABLE as error:
            step = "remove it, and trust the configurations again"
            raise UsageError("is damaged", where=str(self.path), next_step=step) from error

    def state(self, place: Path, sha256: str) -> TrustState:
        known = self.all().get(str(place))
        if known is None:
            return TrustState.UNKNOWN
        return TrustState.TRUSTED if known == sha256 else TrustState.CHANGED

    def add(self, place: Path, sha256: str) -> None:
        """Raises UsageError."""
        self._write({**self.all(), str(place): sha256})

    def remove(self, place: Path) -> bool:
        """Whether it was there. Raises UsageError."""
        known = dict(self.all())
        if known.pop(str(place), None) is None:
            return False
        self._write(known)
        return True

    def _write(self, files: Mapping[str, str]) -> None:
        """Replaces the store as a whole, so that a reader finds the former or the new one."""
        content = msgspec.json.format(msgspec.json.encode(_Stored(dict(sorted(files.items())))))
        part = self.path.with_name(f"{self.path.name}.{secrets.token_hex(6)}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            part.replace(self.path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise UsageError(f"cannot be written: {error.strerror}", where=str(self.path)) from error
