"""Which metrics pages of one machine belong to one inference service: services are diagnosed apart.

Pages with a common model are one service (replicas, a router and its workers). A page that names no model belongs to
the only service of its family; exporters of the machine belong to all, a gateway to the only service there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latdoctor.collectors.prometheus.discovery import DiscoveredPage

# Dialects of what runs beside services: of the machine, and before them. All others are inference servers.
MACHINE = frozenset({"cadvisor", "dcgm", "kube-state-metrics", "node-exporter", "nvidia-gpu-exporter"})
GATEWAYS = frozenset({"envoy", "ingress-nginx", "istio", "knative", "litellm"})


@dataclass(frozen=True, slots=True)
class LocalService:
    """The pages of one service, with those of the machine, and what it is called."""

    urls: tuple[str, ...]
    title: str


def services_of(pages: Sequence[DiscoveredPage]) -> tuple[LocalService, ...]:
    """The services among `pages`, in their order. Pages of unknown exporters belong to none."""
    known = [page for page in pages if page.dialects]
    machine = [page for page in known if set(page.dialects) <= MACHINE]
    gateways = [page for page in known if page not in machine and set(page.dialects) <= MACHINE | GATEWAYS]
    groups: list[list[DiscoveredPage]] = []
    for page in known:
        if page not in machine and page not in gateways and page.models:
            _joined(groups, page)
    for page in known:
        if page in machine or page in gateways or page.models:
            continue
        family = [group for group in groups if _family(page) & _family(group[0])]
        if len(family) == 1:
            family[0].append(page)
        else:
            groups.append([page])
    if len(groups) == 1:
        groups[0].extend(gateways)
    elif gateways:
        groups.append(gateways)
    return tuple(_service(group, machine) for group in groups or [[]] if group or machine)


def _joined(groups: list[list[DiscoveredPage]], page: DiscoveredPage) -> None:
    """Put `page` into the group with a common model, joining groups that it connects."""
    common = [group for group in groups if any(set(one.models) & set(page.models) for one in group)]
    merged = [one for group in common for one in group] + [page]
    groups[:] = [group for group in groups if group not in common]
    groups.append(merged)


def _family(page: DiscoveredPage) -> frozenset[str]:
    """`vllm` of vllm, vllm-router and vllm-ray."""
    return frozenset(dialect.partition("-")[0] for dialect in page.dialects)


def _service(group: Sequence[DiscoveredPage], machine: Sequence[DiscoveredPage]) -> LocalService:
    models = list(dict.fromkeys(model for page in group for model in page.models))
    title = " and ".join(dict.fromkeys(page.title for page in group)) or "exporters of this machine"
    named = f" ({', '.join(models[:3])}{f' and {len(models) - 3} more' if len(models) > 3 else ''})" if models else ""
    return LocalService(tuple(page.url for page in (*group, *machine)), f"{title}{named}")
