"""What others and people write into an incident, as it is journaled: cleaned, and without the credentials in it.

These are taken out here, before the journal, and not where something is shown: an entry is never changed, and every
message, document, export and copy is made of the entries. What was never written cannot be forgotten by one of them.
"""

from __future__ import annotations

from latdoctor.evidence.redact import HIDDEN, without_secrets
from latdoctor.text import clean


def harmless(text: str, limit: int) -> str:
    """`text`, an address for one, in at most `limit` characters: without logins, tokens, passwords and keys."""
    return clean(without_secrets(clean(text, limit)), limit)


def harmless_field(name: str, value: str, limit: int) -> str:
    """The `value` of a label or annotation: nothing of it where its `name` says that it is a credential."""
    safe = clean(value, limit)
    shown = without_secrets(f"{name}={safe}")
    if not shown.startswith(f"{name}="):  # the name itself is odd
        return harmless(safe, limit)
    inner = shown.removeprefix(f"{name}=")
    # Of several words only the first is recognised, and all of them may be the password.
    return HIDDEN if inner.startswith(HIDDEN) and inner != safe else clean(inner, limit)
