"""A plan as a locustfile. `locust_users` has what it does: it runs in Locust's process, with latdoctor installed."""

from __future__ import annotations

import json

import msgspec

from latdoctor.load.drivers.differences import TEXT, Driver, differences
from latdoctor.load.drivers.exported import ExportedLoad
from latdoctor.load.drivers.share import check_times
from latdoctor.load.plan import LoadPlan
from latdoctor.load.request_template import RequestTemplate


def locust_file(plan: LoadPlan, *, times: float = 1.0, request: RequestTemplate | None = None) -> str:
    """The locustfile. Raises UsageError for a plan that cannot be multiplied."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    check_times(plan, times)
    load = msgspec.to_builtins(ExportedLoad(plan, times, request))
    environment = Environment(  # noqa: S701  # Python, not HTML; its only value is JSON, in which three quotes never follow each other
        loader=PackageLoader("latdoctor.load.drivers"), undefined=StrictUndefined, trim_blocks=True
    )
    found = differences(plan, Driver.LOCUST, times, request)
    return environment.get_template("locustfile.py.jinja").render(
        load=json.dumps(load, indent=2), differences=[TEXT[one] for one in found]
    )
