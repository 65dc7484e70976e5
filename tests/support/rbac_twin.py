"""RBAC as the documentation tells it: scan everything, every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.machinery.errors import Obj

Objects = dict[tuple[str, str, str], Obj]  #: (plural, namespace, name) → a role or binding

# --- evaluation -----------------------------------------------------------------------------------


def is_allowed(objects: Objects, user: User, asked: Attributes) -> bool:
    return any(rule_allows(rule, asked) for rule in rules_of(objects, user, asked.namespace))


def rules_of(objects: Objects, user: User, namespace: str) -> Iterator[Obj]:
    for (plural, home, _), binding in objects.items():
        here = plural == "clusterrolebindings" or (plural == "rolebindings" and namespace and home == namespace)
        if here and any(is_subject(one, home, user) for one in binding["subjects"]):
            role = binding["roleRef"]
            place = ("roles", home) if role["kind"] == "Role" else ("clusterroles", "")
            yield from objects.get((*place, role["name"]), {}).get("rules") or ()


def is_subject(subject: Obj, home: str, user: User) -> bool:
    name: str = subject["name"]
    if subject["kind"] == "Group":
        return name in user.groups
    if subject["kind"] == "User":
        return name == user.name
    return user.name == f"system:serviceaccount:{subject.get('namespace') or home}:{name}"


def rule_allows(rule: Obj, asked: Attributes) -> bool:
    if not {"*", asked.verb}.intersection(rule["verbs"]):
        return False
    if asked.path is not None:
        return any(
            url == asked.path or (url.endswith("*") and asked.path.startswith(url.rstrip("*")))
            for url in rule.get("nonResourceURLs", ())
        )
    what = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    resources = {"*", what} | ({f"*/{asked.subresource}"} if asked.subresource else set())
    return bool(
        {"*", asked.group}.intersection(rule.get("apiGroups", ()))
        and resources.intersection(rule.get("resources", ()))
        and (not rule.get("resourceNames") or asked.name in rule["resourceNames"])
    )


# --- what may be drawn ----------------------------------------------------------------------------

VERBS = ["get", "list", "create"]
GROUPS = ["", "apps"]
RESOURCES = ["pods", "secrets"]
SUBRESOURCES = ["log", "scale"]
NAMES = ["a", "b"]
NAMESPACES = ["one", "two"]
PATHS = ["/healthz", "/healthz/x", "/apis", "/"]
USERS = [
    User("ann", ("devs", "system:authenticated")),
    User("bob", ("ops",)),
    User("system:serviceaccount:one:bot", ("system:serviceaccounts", "devs")),
    User("eve"),
]


def some(words: Iterable[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([*words]), min_size=1, max_size=2, unique=True)


def resource_rules() -> st.SearchStrategy[Obj]:
    written = [*RESOURCES, "*", "pods/log", "*/log", "*/scale", "secrets/scale"]
    return st.builds(
        lambda verbs, groups, resources, names: {
            "verbs": verbs,
            "apiGroups": groups,
            "resources": resources,
            **({"resourceNames": names} if names else {}),
        },
        some([*VERBS, "*"]),
        some([*GROUPS, "*"]),
        some(written),
        st.one_of(st.just([]), some(NAMES)),
    )


def path_rules() -> st.SearchStrategy[Obj]:
    paths = some([*PATHS, "/healthz/*", "*", "/api*"])
    return st.builds(lambda verbs, urls: {"verbs": verbs, "nonResourceURLs": urls}, some([*VERBS, "*"]), paths)


def rules(*, namespaced: bool) -> st.SearchStrategy[list[Obj]]:
    kinds = resource_rules() if namespaced else st.one_of(resource_rules(), path_rules())
    return st.lists(kinds, max_size=3)


def subjects() -> st.SearchStrategy[list[Obj]]:
    kinds: list[dict[str, Any]] = [
        {"kind": "User", "name": "ann"},
        {"kind": "User", "name": "eve"},
        {"kind": "User", "name": "system:serviceaccount:one:bot"},
        {"kind": "Group", "name": "devs"},
        {"kind": "Group", "name": "ops"},
        {"kind": "Group", "name": "ann"},
        {"kind": "ServiceAccount", "name": "bot", "namespace": "one"},
        {"kind": "ServiceAccount", "name": "bot", "namespace": "two"},
    ]
    return st.lists(st.sampled_from(kinds), max_size=3)


def requests() -> st.SearchStrategy[Attributes]:
    verbs = st.sampled_from([*VERBS, "delete"])
    about_paths = st.builds(lambda verb, path: Attributes(verb, path=path), verbs, st.sampled_from(PATHS))
    about_resources = st.builds(
        Attributes,
        verbs,
        st.sampled_from([*GROUPS, "batch"]),
        st.sampled_from([*RESOURCES, "nodes"]),
        st.sampled_from(["", *SUBRESOURCES]),
        st.sampled_from(["", *NAMESPACES]),
        st.sampled_from(["", *NAMES]),
        st.none(),
    )
    return st.one_of(about_resources, about_paths)
