"""Which addresses of somebody else's may be changed: those that the target lists, and no way around the list.

A host name may lead to this machine or into its network. So it is looked up once, every address that it has is judged,
and the exchange goes to the very address that was judged (no second look-up that could say something else).
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from latdoctor.errors import UsageError
from latdoctor.remedy.change import Refused, Unreachable
from latdoctor.remedy.http import checked
from latdoctor.text import clean
from latdoctor.web.address import PORTS, Address, Resolve, address_of, is_plain_path, is_public, lies_under, resolved


def permitted(url: str, allow: Sequence[str]) -> str:
    """`url`, where it lies under one of `allow`. Raises UsageError."""
    parts = urlsplit(checked(url))
    if not url.isascii() or not is_plain_path(parts.path):
        raise UsageError("the path is written in a way that can be misread", where=clean(url, 200))
    if any(lies_under(parts, urlsplit(checked(one))) for one in allow):
        return url
    raise UsageError(
        "it may not be changed: it is not under what the target allows",
        where=clean(url, 200),
        next_step=f"allowed are {', '.join(clean(one, 100) for one in allow) or 'none'}",
    )


def place(url: str, allow: Sequence[str], resolve: Resolve | None = None) -> str:
    """The address to connect to. Raises Refused for one that is not public and not itself in `allow`, Unreachable."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    try:
        found = (resolve or resolved)(host, port)
    except (OSError, UnicodeError) as error:
        raise Unreachable("its name cannot be resolved", where=clean(url, 200)) from error
    named = {urlsplit(one).hostname or "" for one in allow}
    for text in found:
        address = address_of(text)
        if address is None or not (is_public(address) or _is_named(address, host, named)):
            raise Refused(
                f"{clean(host, 100)} leads to {clean(text, 60)}, an address that is not public",
                where=clean(url, 200),
                next_step="if it is meant, list the address itself in the target's `allow`",
            )
    if not found:
        raise Unreachable("its name has no address", where=clean(url, 200))
    return found[0]


def _is_named(address: Address, host: str, named: set[str]) -> bool:
    if host == "localhost" and address.is_loopback:  # it is in the list itself, or `permitted` had refused
        return True
    return any(address_of(one) == address for one in named)
