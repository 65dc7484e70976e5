"""What roles and bindings say about placing: never less than RBAC allows, and every change that matters is noticed."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.edge.authors import Author
from farflung.apis.kcp.names import CONTROLLERS_CLUSTER, SHARED_CLUSTER
from farflung.controllers.placing_rights.decide import (
    PlacingRoles,
    RightKey,
    concerned,
    decode_binding,
    decode_required_groups,
    decode_role,
    is_trusted,
    new_review,
)
from farflung.machinery.errors import Obj

AUTHORS = [
    Author("alice"),
    Author("bob", ("devs",)),
    Author("system:serviceaccount:default:robot", ("system:serviceaccounts", "devs"), "imw"),
    Author("system:serviceaccount:default:robot", ("system:authenticated", "devs"), "wmw"),
]
SUBJECTS: list[Obj] = [
    {"kind": "User", "name": "alice"},
    {"kind": "Group", "name": "devs"},
    {"kind": "Group", "name": "system:authenticated"},
    {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
    {"kind": "User", "name": "system:kcp:serviceaccount:wmw:default:robot"},
]
CLUSTERS = ["imw", SHARED_CLUSTER, CONTROLLERS_CLUSTER, "other"]
KEYS = [RightKey(author, "imw") for author in AUTHORS]
RULES = st.fixed_dictionaries(
    {
        "verbs": st.lists(st.sampled_from(["place", "*", "get"]), max_size=2),
        "apiGroups": st.lists(st.sampled_from(["scheduling.kcp.io", "*", ""]), max_size=2),
        "resources": st.lists(st.sampled_from(["locations", "*", "pods"]), max_size=2),
    },
    optional={"resourceNames": st.lists(st.sampled_from(["l1", "l2"]), max_size=2)},
)
STEPS = st.one_of(
    st.tuples(
        st.just("role"),
        st.sampled_from(CLUSTERS),
        st.sampled_from("xy"),
        st.none() | st.builds(lambda rules: {"rules": rules}, st.lists(RULES, max_size=2)),
    ),
    st.tuples(
        st.just("binding"),
        st.sampled_from(CLUSTERS),
        st.sampled_from("ab"),
        st.none()
        | st.builds(
            lambda role, subjects: {"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subjects},
            st.sampled_from("xyz"),
            st.lists(st.sampled_from(SUBJECTS), max_size=2),
        ),
    ),
)


class Twin:
    """The same by scanning everything."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Obj] = {}

    def rights(self, key: RightKey) -> tuple[bool, frozenset[str]]:
        """Whether the author may place at all, and on which Locations that are named."""
        author = key.author.seen_in(key.cluster)
        names, may = set[str](), False
        for (kind, cluster, _), binding in self.objects.items():
            if kind != "binding" or cluster not in (key.cluster, SHARED_CLUSTER, CONTROLLERS_CLUSTER):
                continue
            role = binding["roleRef"]["name"]
            found = self.objects.get(("role", cluster, role)) or self.objects.get(("role", SHARED_CLUSTER, role), {})
            for rule in found.get("rules", ()) if any(is_author(one, author) for one in binding["subjects"]) else ():
                wanted = (("verbs", "place"), ("apiGroups", "scheduling.kcp.io"), ("resources", "locations"))
                if all({"*", word} & set(rule[part]) for part, word in wanted):
                    may = True
                    names |= set(rule.get("resourceNames", ()))
        return may, frozenset(names)


def is_author(subject: Obj, author: Author) -> bool:
    match subject["kind"]:
        case "Group":
            return subject["name"] in author.groups
        case "User":
            return bool(subject["name"] == author.user)
        case _:
            return author.user == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"


@given(st.lists(STEPS, max_size=12))
def test_after_any_history_the_index_says_what_a_scan_says_and_no_change_is_missed(
    steps: list[tuple[str, ...]],
) -> None:
    index, twin = PlacingRoles(), Twin()
    for kind, cluster, name, obj in steps:
        before = [twin.rights(key) for key in KEYS]
        twin.objects.pop((kind, cluster, name), None)
        if obj is not None:
            twin.objects[kind, cluster, name] = obj
        document = None if obj is None else orjson.dumps(obj)
        if kind == "role":
            changed = index.put_role(cluster, name, document and decode_role(document))
        else:
            changed = index.put_binding(cluster, name, document and decode_binding(document))
        after = [twin.rights(key) for key in KEYS]
        assert [(index.may_place(key), index.candidates(key)) for key in KEYS] == after
        affected = concerned(cluster, KEYS) if changed else []
        assert all(key in affected for key, old, new in zip(KEYS, before, after, strict=True) if old != new)


def test_a_role_that_gives_access_to_the_workspace_matters_and_others_do_not() -> None:
    index = PlacingRoles()
    enter = decode_role(b'{"rules":[{"nonResourceURLs":["/"],"verbs":["access"]}]}')
    other = decode_role(b'{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["*"]}]}')
    assert index.put_role("imw", "enter", enter)
    assert not index.put_role("imw", "other", other)
    bound = b'{"roleRef":{"name":"%s"},"subjects":[{"kind":"User","name":"alice"}]}'
    assert index.put_binding("imw", "a", decode_binding(bound % b"enter"))
    assert not index.put_binding("imw", "b", decode_binding(bound % b"other"))
    assert index.put_binding("imw", "a", None)
    assert not index.may_place(RightKey(Author("alice"), "imw"))


def test_administrators_of_all_workspaces_need_no_role() -> None:
    index = PlacingRoles()
    assert index.may_place(RightKey(Author("kcp-admin", ("system:kcp:admin",)), "imw"))
    assert index.may_place(RightKey(Author("shard-admin", ("system:masters",)), "imw"))
    assert not index.may_place(RightKey(Author("mallory", ("system:masters",), "wmw"), "imw"))
    assert not index.may_place(RightKey(Author("mallory", ("system:masters",), "imw"), "imw"))


def test_a_user_of_another_logical_cluster_has_a_name_that_no_tenant_can_choose() -> None:
    robot = Author("system:serviceaccount:default:robot", ("system:masters", "system:authenticated"), "wmw")
    spec = new_review(RightKey(robot, "imw"), "prod")["spec"]
    assert spec == {
        "user": "system:kcp:serviceaccount:wmw:default:robot",
        "groups": ["system:authenticated"],
        "resourceAttributes": {"verb": "place", "group": "scheduling.kcp.io", "resource": "locations", "name": "prod"},
    }
    assert new_review(RightKey(robot, "wmw"))["spec"]["extra"] == {"authentication.kubernetes.io/cluster-name": ["wmw"]}
    assert Author("alice", ("devs",), "wmw").seen_in("imw") == Author("system:kcp:user:wmw:alice")


def test_a_trusted_path_includes_the_workspaces_below_it() -> None:
    trusted = ("root:teams", "root:web")
    assert [is_trusted(path, trusted) for path in ("root:teams", "root:teams:a", "root:teams2", "root", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_the_groups_that_a_workspace_requires_are_read_from_its_annotation() -> None:
    annotated = {"metadata": {"annotations": {"authorization.kcp.io/required-groups": "a;b"}}}
    assert decode_required_groups(orjson.dumps(annotated)) == "a;b"
    assert decode_required_groups(b'{"metadata":{}}') == ""
