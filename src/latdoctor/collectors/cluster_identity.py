"""Whose Pod is it? Tells where files show objects of equal names that may be of two clusters or namespaces.

An object is named with its namespace and its file, or with its cluster where the command above it names one
(`pod/prod/chat-0@west`), so that files of one cluster show one object. Where a file names no cluster, and the nodes are
not known to be equal, a gap says that it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from latdoctor.evidence.model import Evidence, Gap, Origin, kind_of
from latdoctor.evidence.subject_branch import cluster_of
from latdoctor.gap_code import GapCode

_KINDS = ("pod", "deployment", "statefulset")  # two clusters seldom have nodes of one name
_STEP = "name the cluster in the command that is pasted with its output: kubectl --context NAME"
_SHOWN = 3


def unknown_clusters(parts: Sequence[Evidence]) -> Iterator[Gap]:
    """A gap for objects of equal names in several files of which it is not known whether they are the same."""
    places: dict[str, dict[str, str | None]] = {}  # of each name: the node by its file or cluster
    artifacts: dict[str, str] = {}
    named: set[str] = set()  # the files' places that are clusters
    for part in parts:
        for one in part.subjects:
            name, _, place = one.id.rpartition("@")
            if kind_of(name) not in _KINDS or not _is_of_documents(part):
                continue
            parent = one.parent.rpartition("@")[0] if one.parent and kind_of(one.parent) == "node" else None
            places.setdefault(name, {})[place] = parent
            artifacts.setdefault(place, next(_artifacts(part), ""))
            if cluster_of(part, one.id):
                named.add(place)
    unsure = {name: found for name, found in places.items() if _is_unsure(found, named)}
    if not unsure:
        return
    files = sorted({place for found in unsure.values() for place in found})
    names = _listed(name.replace("/", " ", 1) for name in sorted(unsure))
    why = "which do not all name their cluster: whether they are the same objects is not known"
    reason = f"{names}: in {_listed(files)}, {why}"
    yield Gap("derived", reason, (), None, _STEP, Origin(artifacts[files[0]]), GapCode.AMBIGUOUS)


def _is_of_documents(part: Evidence) -> bool:
    return next(_artifacts(part), "").startswith("documents/")


def _artifacts(part: Evidence) -> Iterator[str]:
    yield from (one.origin.artifact for one in part.readings)
    yield from (one.origin.artifact for one in part.events)


def _is_unsure(places: dict[str, str | None], named: set[str]) -> bool:
    """Whether two files without a cluster, or one beside a named cluster, may show the same object."""
    if len(places) < 2 or all(place in named for place in places):
        return False
    nodes = set(places.values())
    return None in nodes or len(nodes) > 1


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
