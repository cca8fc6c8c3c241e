"""The fields of a change as people read them: of a whole Pod template only what differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latdoctor.remediation.actions.kubernetes.fields import differing
from latdoctor.remediation.change import Change, Field

_PREFIXES = ("/spec/template/spec/", "/spec/template/", "/spec/", "/metadata/annotations/", "/")


def shown_fields(changes: Iterable[Change]) -> Iterator[Field]:
    """Each field; one of a Kubernetes object without the part of its pointer that all have, and `~1` as a slash."""
    for field in (field for change in changes for field in change.fields):
        if not field.name.startswith("/"):
            yield field
            continue
        for pointer, before, after in differing(field.before, field.after, field.name):
            prefix = next(one for one in _PREFIXES if pointer.startswith(one))
            yield Field(pointer.removeprefix(prefix).replace("~1", "/"), before, after)
