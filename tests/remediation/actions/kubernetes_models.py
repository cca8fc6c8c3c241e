"""Checks of an object against the models of the official client, which are generated from the OpenAPI document.

The document itself is not part of the package. The models refuse fields that they do not have, values of another type
and missing fields that are required.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from latdoctor.cluster_api import JSON_PATCH


def problems(value: Any, kind: str) -> list[str]:
    """What is wrong with `value` as a `kind`, such as V1Deployment."""
    from kubernetes.client import models
    from pydantic import ValidationError

    try:
        getattr(models, kind).model_validate_json(json.dumps(value))
    except ValidationError as error:
        return [f"{'/'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return []


MODELS = {
    "deployments": "V1Deployment",
    "horizontalpodautoscalers": "V2HorizontalPodAutoscaler",
    "resourcequotas": "V1ResourceQuota",
    "nodes": "V1Node",
}


_MOVING = ("/metadata/resourceVersion", "/metadata/generation")  # a controller may have written since


def unfit(sent: Iterable[Any], path: str, document: Any) -> list[str]:
    """The problems of requests to the object at `path`, `document` before them; a custom resource has no model."""
    found = []
    for request in sent:
        if request.method == "post":
            found += problems(request.body, "V1SelfSubjectAccessReview")
        elif request.method == "patch" and (model := MODELS.get(path.split("/")[-2])):
            assert request.content_type == JSON_PATCH
            # A controller may have written since.
            ops = [
                one for one in request.body if one["path"] not in ("/metadata/resourceVersion", "/metadata/generation")
            ]
            found += problems(patched(document, ops), model)
    return found


def patched(document: Any, patch: list[dict[str, Any]]) -> Any:
    """`document` after a JSON Patch. Raises AssertionError for a failed test."""
    root = {"": copy.deepcopy(document)}
    for one in patch:
        *parents, last = ["", *(t.replace("~1", "/").replace("~0", "~") for t in one["path"].split("/")[1:])]
        here: Any = root
        for token in parents:
            here = here[int(token)] if isinstance(here, list) else here[token]
        key: Any = int(last) if isinstance(here, list) else last
        match one["op"]:
            case "test":
                assert here[key] == one["value"], one
            case "remove":
                del here[key]
            case "replace":
                assert here[key] is not None
                here[key] = one["value"]
            case _:
                here[key] = one["value"]
    return root[""]
