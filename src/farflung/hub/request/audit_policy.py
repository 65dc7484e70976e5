"""The audit policy: which requests are logged, and how much of them.  A file of it is as in Kubernetes.

The first rule that matches a request decides.  A request that no rule matches is not logged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import yaml

from farflung.apis.names import AUTHENTICATION_GROUP
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.lib import yaml_loader
from farflung.lib.errors import UserError
from farflung.lib.memory import remember

API_VERSION: Final = "audit.k8s.io/v1"
LEVELS: Final = ("None", "Metadata", "Request", "RequestResponse")  #: each logs more than the one before
NONE, METADATA, REQUEST, REQUEST_RESPONSE = range(4)
READS: Final = frozenset({"get", "list", "watch", "head", "options"})
#: (group, resource or resource/subresource) whose bodies are never logged
CONFIDENTIAL: Final = frozenset(
    {
        ("", "secrets"),
        ("", "serviceaccounts/token"),
        (AUTHENTICATION_GROUP, "tokenreviews"),
        (AUTHENTICATION_GROUP, "tokenrequests"),
    }
)

Stage = Literal["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]


class AuditPolicyError(UserError):
    """The text says what to correct in the file."""


class AuditedResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Some resources of one API group.  Empty fields select everything."""

    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()

    def may_match(self, group: str, resource: str, subresource: str) -> bool:
        return self.group == group and (not self.resources or self._names(resource, subresource))

    def _names(self, resource: str, subresource: str) -> bool:
        forms = {"*", f"{resource}/*", f"{resource}/{subresource}" if subresource else resource}
        if subresource:
            forms.add(f"*/{subresource}")
        return not forms.isdisjoint(self.resources)


FIELDS: Final = {
    "user_groups": "userGroups",
    "non_resource_urls": "nonResourceURLs",
    "omit_stages": "omitStages",
    "omit_managed_fields": "omitManagedFields",
}


class AuditRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=FIELDS):
    """Empty fields match every request."""

    level: Literal["None", "Metadata", "Request", "RequestResponse"]
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[AuditedResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()
    omit_stages: tuple[Stage, ...] = ()
    omit_managed_fields: bool | None = None

    def may_match(self, verb: str, group: str, resource: str, subresource: str, path: str | None) -> bool:
        """Whether it matches for some user, namespace and name."""
        if self.verbs and verb not in self.verbs:
            return False
        if self.resources or self.namespaces:
            return path is None and (
                not self.resources or any(one.may_match(group, resource, subresource) for one in self.resources)
            )
        return not self.non_resource_urls or (
            path is not None and any(matches_path(pattern, path) for pattern in self.non_resource_urls)
        )

    def matches(self, user: User | None, attributes: Attributes) -> bool:
        """Whether a rule that may match does."""
        if self.users and (user is None or user.name not in self.users):
            return False
        if self.user_groups and (user is None or set(self.user_groups).isdisjoint(user.groups)):
            return False
        if self.namespaces and attributes.namespace not in self.namespaces:
            return False
        _, group, resource, subresource, _, name, _ = attributes
        return not self.resources or any(
            (not one.resources or not one.resource_names or name in one.resource_names)
            and one.may_match(group, resource, subresource)
            for one in self.resources
        )


class _Document(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={**FIELDS, "api_version": "apiVersion"}
):
    api_version: str
    kind: str
    rules: tuple[AuditRule, ...]
    metadata: dict[str, Any] = {}
    omit_stages: tuple[Stage, ...] = ()
    omit_managed_fields: bool = False


class AuditDecision(NamedTuple):
    level: int
    omitted_stages: frozenset[str] = frozenset()
    omits_managed_fields: bool = False


IGNORED: Final = AuditDecision(NONE)


class AuditPolicy:
    """`confidential`: further resources (group, plural) whose bodies are never logged."""

    def __init__(self, document: _Document, confidential: Iterable[tuple[str, str]] = ()) -> None:
        self._rules = [(rule, decision_of(document, rule)) for rule in document.rules]
        self._confidential = CONFIDENTIAL.union(confidential)
        self._candidates = remember(1024)(self._find_candidates)
        #: one of them is in each path with which a request that only reads may be logged
        self.words_of_reads = words_of_reads(document.rules)
        logged = [decision for _, decision in self._rules if decision.level > NONE]
        self.has_bodies = any(decision.level > METADATA for decision in logged)
        self.has_received = any("RequestReceived" not in decision.omitted_stages for decision in logged)

    @classmethod
    def parse(cls, text: str | bytes, confidential: Iterable[tuple[str, str]] = ()) -> AuditPolicy:
        """Raises AuditPolicyError."""
        try:
            document = msgspec.convert(yaml_loader.load(text), _Document)
        except yaml.YAMLError as error:
            raise AuditPolicyError(f"it is not YAML: {' '.join(str(error).split())}") from None
        except msgspec.ValidationError as error:
            raise AuditPolicyError(str(error)) from None
        if problem := next(problems(document), ""):
            raise AuditPolicyError(problem)
        return cls(document, confidential)

    @classmethod
    def read(cls, path: Path, confidential: Iterable[tuple[str, str]] = ()) -> AuditPolicy:
        """Raises AuditPolicyError, OSError."""
        try:
            return cls.parse(path.read_bytes(), confidential)
        except AuditPolicyError as error:
            raise AuditPolicyError(f"the audit policy {path} is invalid: {error}; correct the file") from None

    def decide(self, user: User | None, attributes: Attributes) -> AuditDecision:
        """`user`: the authenticated user."""
        verb, group, resource, subresource, _, _, path = attributes
        for rule, decision in self._candidates(verb, group, resource, subresource, path):
            if rule.matches(user, attributes):
                hides_bodies = decision.level > METADATA and self.is_confidential(attributes)
                return decision._replace(level=METADATA) if hides_bodies else decision
        return IGNORED

    def is_confidential(self, attributes: Attributes) -> bool:
        group, subresource = attributes.group, attributes.subresource
        resource = attributes.resource.partition(":")[0]  # the identity of an export may follow
        return (group, resource) in self._confidential or (group, f"{resource}/{subresource}") in self._confidential

    def _find_candidates(
        self, verb: str, group: str, resource: str, subresource: str, path: str | None
    ) -> list[tuple[AuditRule, AuditDecision]]:
        resource = resource.partition(":")[0]
        return [one for one in self._rules if one[0].may_match(verb, group, resource, subresource, path)]


def decision_of(document: _Document, rule: AuditRule) -> AuditDecision:
    stages = frozenset((*document.omit_stages, *rule.omit_stages))
    omits = document.omit_managed_fields if rule.omit_managed_fields is None else rule.omit_managed_fields
    return AuditDecision(LEVELS.index(rule.level), stages, omits)


def matches_path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def words_of_reads(rules: Collection[AuditRule]) -> tuple[str, ...]:
    """The empty word is in every path."""
    words = {"%"}  # any character may be percent-encoded
    for rule in rules:
        if rule.level == "None" or (rule.verbs and READS.isdisjoint(rule.verbs)):
            continue
        for one in rule.resources:
            words.update(name.partition("/")[0] for name in one.resources or ("*",))
        if not rule.resources or "*" in words:
            return ("",)
    return tuple(sorted(words))


def problems(document: _Document) -> Iterator[str]:
    """As kube-apiserver refuses them."""
    if (document.api_version, document.kind) != (API_VERSION, "Policy"):
        yield f"apiVersion and kind must be {API_VERSION} and Policy"
    if not document.rules:
        yield "rules: at least one is required"
    for number, rule in enumerate(document.rules):
        at = f"rules[{number}]"
        if rule.non_resource_urls and (rule.resources or rule.namespaces):
            yield f"{at}.nonResourceURLs: a rule cannot select both resources or namespaces and other paths"
        for url in rule.non_resource_urls:
            if url != "*" and not url.startswith("/"):
                yield f"{at}.nonResourceURLs: {url!r} must begin with a slash"
            if "*" in url[:-1]:
                yield f"{at}.nonResourceURLs: {url!r}: an asterisk may only be the last character"
        for place, one in enumerate(rule.resources):
            if "/" in one.group:
                yield f"{at}.resources[{place}].group: {one.group!r} must be a group without a version"
            if one.resource_names and not one.resources:
                yield f"{at}.resources[{place}].resourceNames: requires resources"


#: every request that could change an object, but no heartbeat and no review; and every request for Secrets
DEFAULT_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [update, patch]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: None
  resources: [{group: authentication.k8s.io}, {group: authorization.k8s.io}]
- level: Metadata
  resources: [{group: "", resources: [secrets]}]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
"""


@cache
def default_policy() -> AuditPolicy:
    return AuditPolicy.parse(DEFAULT_POLICY)
