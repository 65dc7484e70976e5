"""create of `serviceaccounts/NAME/token`: a token for a ServiceAccount, optionally bound to an object."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

import orjson

from farflung.apis import wire
from farflung.apis.names import AUTHENTICATION_GROUP
from farflung.http.messages import Answer, Response
from farflung.hub.auth.service_account_tokens import (
    AUDIENCES,
    BoundObjects,
    ObjectClaim,
    ServiceAccount,
    ServiceAccountTokens,
)
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Shape, builtin_shape
from farflung.hub.registry import respond
from farflung.hub.registry.bodies import decode_object
from farflung.hub.registry.call import Call
from farflung.hub.registry.pipeline import Write, check_not_terminating, manager_of, set_namespace
from farflung.hub.request.negotiation import Representation
from farflung.hub.request.options import write_options
from farflung.machinery.codec import protobuf
from farflung.machinery.errors import (
    ApiError,
    FieldError,
    Obj,
    bad_request,
    conflict,
    go_quote,
    invalid,
    invalid_value,
    not_found,
)
from farflung.machinery.fields import managed
from farflung.machinery.times import format_seconds

KIND: Final = "TokenRequest"
DEFAULT_LIFETIME: Final = 3600
SHORTEST_LIFETIME: Final = 600
LONGEST_LIFETIME: Final = 1 << 32


def shape() -> Shape:
    api_version = f"{AUTHENTICATION_GROUP}/v1"
    return builtin_shape(AUTHENTICATION_GROUP, api_version, KIND, "io.k8s.api.authentication.v1.TokenRequest")


async def create_token(accounts: ServiceAccountTokens, longest: int, call: Call) -> Answer:
    """`longest`: seconds to which the lifetime of tokens is shortened."""
    options = write_options("CreateOptions", call.request.query)
    representation = respond.negotiated(call, many=False)
    body = decode_object(call.request, shape(), options, call.shape)
    request = body.obj
    metadata, spec = request["metadata"], request["spec"]
    set_namespace(call, metadata)
    check_not_terminating(call, call.target.name)
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = DEFAULT_LIFETIME
    owners = owners_of(call, request, manager_of(call, options))
    check_name(call, metadata)
    account = account_of(call)
    if not spec.get("audiences"):
        spec["audiences"] = list(AUDIENCES)
    check_lifetime(spec)
    if (seconds := spec["expirationSeconds"]) > longest:
        body.warnings.append(f"requested expiration of {seconds} seconds shortened to {longest} seconds")
        spec["expirationSeconds"] = longest
    write = Write(call, options, identified(request), warnings=body.warnings)
    await call.tools.pipeline.check(write, call.target.subresource)
    bound = bound_by(call, spec.get("boundObjectRef"))
    now = call.tools.clock()
    token = accounts.issue(account, spec["audiences"], spec["expirationSeconds"], bound)
    expires = format_seconds(now + timedelta(seconds=spec["expirationSeconds"]))
    issued = {
        "kind": KIND,
        "apiVersion": shape().api_version,
        "metadata": described(call, account, metadata) | {"managedFields": owners},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": expires},
    }
    return answer(call, representation, issued, body.warnings)


def identified(request: Obj) -> Obj:
    return {**request, "kind": KIND, "apiVersion": shape().api_version}


def described(call: Call, account: ServiceAccount, metadata: Obj) -> Obj:
    issued = {"name": account.name, "namespace": account.namespace, "uid": account.uid, "creationTimestamp": call.now()}
    return issued | {name: metadata[name] for name in ("labels", "annotations") if name in metadata}


def owners_of(call: Call, request: Obj, manager: str) -> list[Obj]:
    """The managedFields of a TokenRequest, although it is not stored."""
    set_fields = {name: value for name, value in request["spec"].items() if value is not None}
    return managed.after_update(
        request | {"spec": set_fields, "status": {}},
        None,
        shape().schema,
        manager=manager,
        api_version=shape().api_version,
        now=call.now(),
        subresource=call.target.subresource,
        reset=None,
    )


def check_name(call: Call, metadata: Obj) -> None:
    name = metadata.get("name", "")
    if name and name != call.target.name:
        error = invalid_value("metadata.name", name, "must match the service account name if specified")
        raise invalid(AUTHENTICATION_GROUP, KIND, call.target.name, [error])


def check_lifetime(spec: Obj) -> None:
    seconds: int = spec["expirationSeconds"]
    errors: list[FieldError] = []
    if seconds < SHORTEST_LIFETIME:
        detail = "may not specify a duration less than 10 minutes"
        errors.append(invalid_value("spec.expirationSeconds", seconds, detail))
    if seconds > LONGEST_LIFETIME:
        detail = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid_value("spec.expirationSeconds", seconds, detail))
    if errors:
        raise invalid(AUTHENTICATION_GROUP, KIND, "", errors)


def account_of(call: Call) -> ServiceAccount:
    uid = objects.decode(call.found())["metadata"]["uid"]
    return ServiceAccount(call.target.cluster, call.target.namespace, call.target.name, uid)


# --- the object that a token is bound to ----------------------------------------------------------


class Bindable(NamedTuple):
    plural: str
    namespaced: bool


BINDABLE: Final = {"Pod": Bindable("pods", True), "Secret": Bindable("secrets", True), "Node": Bindable("nodes", False)}


def bound_by(call: Call, reference: Obj | None) -> BoundObjects:
    """The object to which the token is bound.  Raises ApiError if it does not exist or has another uid."""
    if reference is None:
        return BoundObjects()
    group, _, version = reference.get("apiVersion", "").rpartition("/")
    kind, name = reference.get("kind", ""), reference.get("name", "")
    bindable = BINDABLE.get(kind) if not group else None
    if bindable is None:
        raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    obj = existing(call, bindable, name)
    bound = bound_to(call, kind, obj)
    wanted = reference.get("uid", "")
    if wanted and wanted != obj["metadata"]["uid"]:
        why = (
            f"the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have "
            "been deleted and then recreated"
        )
        raise conflict(group, kind, name, why)
    return bound


def existing(call: Call, bindable: Bindable, name: str) -> Obj:
    namespace = call.target.namespace if bindable.namespaced else ""
    obj = call.find("", bindable.plural, namespace, name) if name and "/" not in name else None
    if obj is None:
        raise not_found("", bindable.plural, name)
    return obj


def bound_to(call: Call, kind: str, obj: Obj) -> BoundObjects:
    reference = ObjectClaim(obj["metadata"]["name"], obj["metadata"]["uid"])
    if kind == "Node":
        return BoundObjects(node=reference)
    if kind == "Secret":
        return BoundObjects(secret=reference)
    spec = obj.get("spec", {})
    if spec.get("serviceAccountName") != call.target.name:
        raise another_account(call.target.name)
    return BoundObjects(pod=reference, node=node_of(call, spec.get("nodeName", "")))


def another_account(name: str) -> ApiError:
    shown_name = go_quote(name)
    return bad_request(
        f"cannot bind token for serviceaccount {shown_name} to pod running with different serviceaccount name."
    )


def node_of(call: Call, name: str) -> ObjectClaim | None:
    """The node of a Pod.  A node that does not exist here has only a name."""
    if not name:
        return None
    node = call.find("", "nodes", "", name)
    return ObjectClaim(name, "" if node is None else node["metadata"]["uid"])


# --- the answer -----------------------------------------------------------------------------------


def answer(call: Call, representation: Representation, request: Obj, warnings: list[str]) -> Answer:
    headers = respond.warning_headers(call, warnings)
    match representation.media:
        case "protobuf":
            encoded = protobuf.encode(request, shape().definition, wire.MESSAGES)
        case "yaml":
            encoded = respond.dumped_yaml(request)
        case _:
            encoded = orjson.dumps(request)
    return Response(201, encoded, representation.content_type, headers)
