"""A request as policies see it.  Expensive parts are computed when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import orjson

from farflung.apis.admissionregistration.authorizer import AuthorizerValue, DecisionValue, ResourceCheck
from farflung.apis.autoscaling import API_VERSION, KIND
from farflung.apis.builtin.catalog import Path
from farflung.apis.names import SERVICE_ACCOUNT
from farflung.apis.resource import Resource
from farflung.hub.admission.policies.evaluation import AUTHORIZER, REQUEST_RESOURCE
from farflung.hub.admission.policies.matcher import CREATE, DELETE, UPDATE
from farflung.hub.catalog import objects
from farflung.hub.catalog.kinds import Kind, same
from farflung.hub.catalog.served import path_of
from farflung.hub.registry.call import Call
from farflung.hub.request.attributes import Attributes, Decision
from farflung.hub.request.user import User, user_info
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import Labels

OPTIONS: Final = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}
#: metadata of the namespace that policies see
SHOWN: Final = frozenset(objects.METADATA_ORDER) - {"namespace", "ownerReferences", "managedFields"}
#: subresources with a kind of their own: apiVersion and kind
OWN_KINDS: Final = {"scale": (API_VERSION, KIND), "token": ("authentication.k8s.io/v1", "TokenRequest")}


class AdmissionRequest:
    def __init__(
        self, call: Call, operation: str, new: Obj | None, old: Obj | None, *, options: Obj, dry_run: bool
    ) -> None:
        """Objects are in the form that the rules of the kind use."""
        self._call = call
        self.operation = operation
        self._new = new
        self._old = old
        self._options = options
        self._dry_run = dry_run
        self._given: dict[Path, dict[str, Any]] = {}  #: by resource
        target = call.target
        self.name: str = target.name or ((new or old or {}).get("metadata") or {}).get("name", "")
        self.of_namespace = call.resource.qualified == "namespaces"
        #: a Namespace is in itself
        self.namespace = self.name if self.of_namespace else target.namespace

    # --- what decides about matches ---------------------------------------------------------------

    def labels(self) -> tuple[Labels | None, Labels | None]:
        return labels_of(self._new), labels_of(self._old)

    def namespace_labels(self) -> Labels | None:
        if not self.namespace:
            return None
        if self.of_namespace and not self._call.target.subresource and self._new is not None:
            return labels_of(self._new)
        entry = self._call.store.get(objects.namespace_key(self._call.target.cluster, self.namespace))
        return {} if entry is None else objects.labels_of(entry)

    # --- what expressions are given ---------------------------------------------------------------

    def given(self, form: Resource, params: Obj | None) -> dict[str, Any]:
        path = path_of(form)
        given = self._given.get(path)
        if given is None:
            given = self._given[path] = {
                "object": self._shown(self._new, form),
                "oldObject": self._shown(self._old, form),
                "request": self._request(form),
                "namespaceObject": self._namespace,
                "params": None,
                AUTHORIZER: self._authorizer,
                REQUEST_RESOURCE: self._request_resource,
            }
        return given if params is None else {**given, "params": params}

    def _shown(self, obj: Obj | None, form: Resource) -> Obj | None:
        if obj is None:
            return None
        kind, subresource = self._call.kind, self._call.target.subresource
        if subresource in OWN_KINDS:
            return obj
        if path_of(form) != path_of(kind.resource):
            other = self._call.tools.kinds.of(self._call.target.cluster).of(form.group, form.version, form.plural)
            return other.served(stored_form(kind, obj))
        if kind.conversion is not None and kind.conversion.enter is not same:
            return kind.served(stored_form(kind, obj))
        return {**obj, "apiVersion": form.api_version, "kind": form.kind}

    def _request(self, form: Resource) -> Obj:
        resource, subresource = self._call.resource, self._call.target.subresource
        request: Obj = {
            "kind": kind_of(form, subresource),
            "resource": {"group": form.group, "version": form.version, "resource": form.plural},
            "requestKind": kind_of(resource, subresource),
            "requestResource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
            "name": self.name,
            "operation": self.operation,
            "userInfo": self._user,
            "dryRun": self._dry_run,
            "options": {"kind": OPTIONS[self.operation], "apiVersion": "meta.k8s.io/v1", **self._options},
        }
        if subresource:
            request["subResource"] = request["requestSubResource"] = subresource
        if self.namespace:
            request["namespace"] = self.namespace
        return request

    @cached_property
    def _user(self) -> Obj:
        return user_info(self._call.user)

    @cached_property
    def _namespace(self) -> Obj | None:
        if not self._call.target.namespace:
            return None
        entry = self._call.store.get(objects.namespace_key(self._call.target.cluster, self._call.target.namespace))
        if entry is None:
            return None
        namespace = objects.decode(entry)
        metadata = {name: value for name, value in namespace["metadata"].items() if name in SHOWN}
        return {"metadata": metadata, "spec": namespace.get("spec", {}), "status": namespace.get("status", {})}

    @cached_property
    def _authorizer(self) -> AuthorizerValue:
        return UserPermissions(self._call.tools.authorizer.decide, self._call.user, self._call.target.cluster)

    @cached_property
    def _request_resource(self) -> ResourceCheck:
        target = self._call.target
        return ResourceCheck(
            self._authorizer, target.group, target.plural, target.subresource, self.namespace, self.name
        )


@dataclass(frozen=True, slots=True)
class UserPermissions(AuthorizerValue):
    """The `authorizer` of expressions."""

    decide: Callable[[str, User, Attributes], Decision]
    user: User
    cluster: str

    def as_service_account(self, namespace: str, name: str) -> AuthorizerValue:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        account = User(f"{SERVICE_ACCOUNT}{namespace}:{name}", groups, cluster=self.cluster)
        return replace(self, user=account)

    def check_path(self, path: str, verb: str) -> DecisionValue:
        return self._decide(Attributes(verb, path=path))

    def check_resource(self, check: ResourceCheck, verb: str) -> DecisionValue:
        return self._decide(
            Attributes(verb, check.group, check.resource, check.subresource, check.namespace, check.name)
        )

    def _decide(self, attributes: Attributes) -> DecisionValue:
        decision = self.decide(self.cluster, self.user, attributes)
        return DecisionValue(decision.allowed, decision.reason)


def labels_of(obj: Obj | None) -> Labels | None:
    return None if obj is None else obj["metadata"].get("labels") or {}


def stored_form(kind: Kind, obj: Obj) -> Obj:
    """A copy of an object in its stored form."""
    copy: Obj = orjson.loads(orjson.dumps(obj))
    encoded: Obj = orjson.loads(kind.encode(copy))
    return encoded


def kind_of(resource: Resource, subresource: str) -> Obj:
    api_version, kind = OWN_KINDS.get(subresource, (resource.api_version, resource.kind))
    group, _, version = api_version.rpartition("/")
    return {"group": group, "version": version, "kind": kind}
