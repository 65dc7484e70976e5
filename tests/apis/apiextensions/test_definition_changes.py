"""How definitions come, change and go: defaults, names, conditions, what an update may do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.apiextensions import conditions
from farflung.apis.apiextensions.conditions import mark_deleted, naming, terminating, with_status
from farflung.apis.apiextensions.kinds import RESOURCES
from farflung.apis.apiextensions.validation import GROUP, KIND, RULES
from farflung.hub.catalog.kinds import shape_of
from farflung.machinery.errors import Obj

RULES_OF_DEFINITIONS = RULES[GROUP, KIND]
CONFORMER = shape_of(RESOURCES[0]).conformer
SCHEMA = {"openAPIV3Schema": {"type": "object"}}
NOW, LATER = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"


def version(name: str = "v1", **members: Any) -> Obj:
    return {"name": name, "served": True, "storage": name == "v1", "schema": SCHEMA, **members}


def sent(names: Obj | None = None, versions: list[Obj] | None = None, group: str = "example.com", **spec: Any) -> Obj:
    names = names or {"plural": "things", "kind": "Thing"}
    body = {
        "metadata": {"name": f"{names['plural']}.{group}", "generation": 1},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions or [version()], **spec},
    }
    return CONFORMER.conform(copy.deepcopy(body)).obj


def created(*others: Obj, **members: Any) -> Obj:
    made = sent(**members)
    RULES_OF_DEFINITIONS.default(made)
    RULES_OF_DEFINITIONS.prepare_create(made)
    assert RULES_OF_DEFINITIONS.validate_create(made) == []
    made["status"] = with_status(made, others, NOW)
    return made


def changed(old: Obj, *others: Obj, **members: Any) -> Obj:
    new = sent(**members)
    RULES_OF_DEFINITIONS.default(new)
    RULES_OF_DEFINITIONS.prepare_update(new, old)
    new["status"] = with_status(new, others, LATER)
    return new


def refused(new: Obj, old: Obj) -> list[str]:
    return [str(error) for error in RULES_OF_DEFINITIONS.validate_update(new, old)]


def condition(definition: Obj, type: str) -> Obj:
    (found,) = [one for one in definition["status"]["conditions"] if one["type"] == type]
    return {name: found[name] for name in ("status", "reason", "message", "lastTransitionTime")}


# --- defaults ---------------------------------------------------------------------------------------


def test_names_and_conversion_have_defaults() -> None:
    made = sent()
    RULES_OF_DEFINITIONS.default(made)
    RULES_OF_DEFINITIONS.prepare_create(made)
    assert made["spec"]["names"] == {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    assert list(made["spec"]["names"]) == ["plural", "singular", "kind", "listKind"]
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["status"] == {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1"],
    }


def test_given_names_stay() -> None:
    names = {"plural": "things", "kind": "Thing", "singular": "one", "listKind": "Things", "shortNames": ["t"]}
    made = sent(names)
    RULES_OF_DEFINITIONS.default(made)
    assert made["spec"]["names"] == names


def test_a_webhook_service_has_a_port() -> None:
    client = {"service": {"name": "s", "namespace": "n"}}
    made = sent(conversion={"strategy": "Webhook", "webhook": {"clientConfig": client}})
    RULES_OF_DEFINITIONS.default(made)
    assert made["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] == 443


def test_a_status_that_is_sent_is_dropped() -> None:
    made = sent()
    made["status"] = {"conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v0"]}
    RULES_OF_DEFINITIONS.default(made)
    RULES_OF_DEFINITIONS.prepare_create(made)
    assert made["status"]["conditions"] is None
    assert made["status"]["storedVersions"] == ["v1"]


# --- names and conditions ---------------------------------------------------------------------------


def test_free_names_establish_a_definition() -> None:
    made = created()
    assert condition(made, "NamesAccepted") == {
        "status": "True",
        "reason": "NoConflicts",
        "message": "no conflicts found",
        "lastTransitionTime": NOW,
    }
    assert condition(made, "Established") == {
        "status": "True",
        "reason": "InitialNamesAccepted",
        "message": "the initial names have been accepted",
        "lastTransitionTime": NOW,
    }
    assert [one["type"] for one in made["status"]["conditions"]] == ["NamesAccepted", "Established"]
    assert made["status"]["acceptedNames"] == made["spec"]["names"]
    assert with_status(made, [], LATER) == made["status"]


def test_of_taken_names_the_last_is_told_and_the_free_ones_are_accepted() -> None:
    first = created()
    second = created(first, names={"plural": "other", "singular": "thing", "kind": "Thing"})
    assert second["status"]["acceptedNames"] == {"plural": "other", "kind": ""}
    assert condition(second, "NamesAccepted")["reason"] == "ListKindConflict"
    assert condition(second, "NamesAccepted")["message"] == '"ThingList" is already in use'
    assert condition(second, "Established") == {
        "status": "False",
        "reason": "NotAccepted",
        "message": "not all names are accepted",
        "lastTransitionTime": NOW,
    }


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"singular": "thing"}, "SingularConflict"),
        ({"shortNames": ["thing"]}, "ShortNamesConflict"),
        ({"kind": "Thing", "listKind": "Others", "singular": "other"}, "KindConflict"),
        ({"kind": "ThingList", "listKind": "Others", "singular": "other"}, "KindConflict"),
        ({"listKind": "ThingList"}, "ListKindConflict"),
    ],
)
def test_each_name_may_be_taken(names: Obj, reason: str) -> None:
    made = created(created(), names={"plural": "others", "kind": "Other", **names})
    assert condition(made, "NamesAccepted")["reason"] == reason


def test_a_plural_may_be_the_short_name_of_another() -> None:
    other = created(names={"plural": "things", "kind": "Thing", "shortNames": ["others"]})
    made = created(other, names={"plural": "others", "kind": "Other"})
    assert condition(made, "NamesAccepted")["reason"] == "PluralConflict"
    assert made["status"]["acceptedNames"]["plural"] == ""


def test_several_short_names_that_are_taken_are_told_together() -> None:
    names = {"plural": "others", "kind": "Other", "shortNames": ["thing", "free", "things"]}
    made = created(created(), names=names)
    message = '["thing" is already in use, "things" is already in use]'
    assert condition(made, "NamesAccepted")["message"] == message
    assert "shortNames" not in made["status"]["acceptedNames"]


def test_names_that_become_free_are_accepted() -> None:
    waiting = created(created(), names={"plural": "others", "kind": "Thing"})
    waiting["status"] = with_status(waiting, [], LATER)
    assert condition(waiting, "NamesAccepted")["lastTransitionTime"] == LATER
    assert condition(waiting, "Established")["status"] == "True"
    assert waiting["status"]["acceptedNames"] == waiting["spec"]["names"]


def test_an_established_definition_stays_so_when_it_asks_for_a_taken_name() -> None:
    first = created()
    second = created(first, names={"plural": "others", "kind": "Other", "shortNames": ["o"]})
    asking = changed(second, first, names={"plural": "others", "kind": "Other", "shortNames": ["o", "thing"]})
    assert condition(asking, "NamesAccepted")["reason"] == "ShortNamesConflict"
    assert condition(asking, "Established")["status"] == "True"
    assert asking["status"]["acceptedNames"]["shortNames"] == ["o"]
    sparing = changed(asking, first, names={"plural": "others", "kind": "Other", "categories": ["all"]})
    assert condition(sparing, "NamesAccepted")["status"] == "True"
    assert "shortNames" not in sparing["status"]["acceptedNames"]
    assert sparing["status"]["acceptedNames"]["categories"] == ["all"]


def test_protected_groups_tell_their_approval() -> None:
    made = sent(group="x.k8s.io")
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for now"}
    made["status"] = with_status(made, [], NOW)
    assert condition(made, "KubernetesAPIApprovalPolicyConformant") == {
        "status": "False",
        "reason": "UnapprovedAnnotation",
        "message": 'not approved: "unapproved, for now"',
        "lastTransitionTime": NOW,
    }
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com/1"}
    made["status"] = with_status(made, [], LATER)
    assert condition(made, "KubernetesAPIApprovalPolicyConformant") == {
        "status": "True",
        "reason": "ApprovedAnnotation",
        "message": "approved in https://example.com/1",
        "lastTransitionTime": LATER,
    }


@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 3, st.lists(st.sampled_from("abc"), max_size=2)), max_size=4))
def test_no_name_is_ever_given_twice(wishes: list[tuple[str, str, str, list[str]]]) -> None:
    """Whoever comes first has a name, and who comes later has what is left."""
    made: list[Obj] = []
    for plural, singular, kind, short in wishes:
        if any(one["spec"]["names"]["plural"] == plural for one in made):
            continue
        names = {"plural": plural, "singular": singular, "kind": kind.upper(), "shortNames": short}
        made.append(created(*made, names=names))
    taken: dict[str, int] = {}
    for index, one in enumerate(made):
        accepted = one["status"]["acceptedNames"]
        for name in {accepted["plural"], accepted.get("singular", ""), *accepted.get("shortNames", ())} - {""}:
            assert taken.setdefault(name, index) == index
        settled = naming(one, made[:index] + made[index + 1 :])
        assert settled.accepted == accepted


# --- updates ----------------------------------------------------------------------------------------


def test_what_the_store_depends_on_does_not_change() -> None:
    old = created()
    assert refused(changed(old, scope="Cluster"), old) == ['spec.scope: Invalid value: "Cluster": field is immutable']
    assert refused(changed(old, names={"plural": "things", "kind": "Other", "listKind": "ThingList"}), old) == [
        'spec.names.kind: Invalid value: "Other": field is immutable'
    ]
    assert refused(changed(old, group="other.example.com"), old) == [
        'spec.group: Invalid value: "other.example.com": field is immutable'
    ]
    assert refused(changed(old, names={"plural": "others", "kind": "Thing"}), old) == [
        'spec.names.plural: Invalid value: "others": field is immutable'
    ]


def test_a_definition_that_is_not_established_may_change_its_kind() -> None:
    waiting = created(created(), names={"plural": "others", "kind": "Thing"})
    assert refused(changed(waiting, names={"plural": "others", "kind": "Other"}, scope="Cluster"), waiting) == []


def test_the_versions_that_objects_were_stored_in_are_remembered_and_stay() -> None:
    old = created(versions=[version(), version("v2")])
    moved = changed(old, versions=[version(storage=False), version("v2", storage=True)])
    assert moved["status"]["storedVersions"] == ["v1", "v2"]
    assert refused(moved, old) == []
    gone = changed(moved, versions=[version("v2", storage=True)])
    assert refused(gone, moved) == [
        'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage '
        "version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 "
        "and removes v1 from status.storedVersions"
    ]
    migrated = copy.deepcopy(moved)
    migrated["status"]["storedVersions"] = ["v2"]
    RULES_OF_DEFINITIONS.prepare_status(migrated, moved)
    assert RULES_OF_DEFINITIONS.validate_status(migrated, moved) == []
    assert refused(changed(migrated, versions=[version("v2", storage=True)]), migrated) == []


def test_an_update_leaves_the_status_and_a_status_update_the_spec() -> None:
    old = created()
    new = changed(old, versions=[version(served=False)])
    assert new["status"] == old["status"]
    status = copy.deepcopy(old)
    status["spec"]["scope"] = "Cluster"
    status["status"]["acceptedNames"]["plural"] = "Up"
    RULES_OF_DEFINITIONS.prepare_status(status, old)
    assert status["spec"] == old["spec"]
    (error,) = RULES_OF_DEFINITIONS.validate_status(status, old)
    assert str(error).startswith('status.acceptedNames.plural: Invalid value: "Up": a DNS-1035 label')


def test_a_missing_approval_is_not_asked_for_again() -> None:
    old = sent(group="x.k8s.io")
    RULES_OF_DEFINITIONS.default(old)
    RULES_OF_DEFINITIONS.prepare_create(old)
    assert refused(changed(old, group="x.k8s.io"), old) == []
    approved = copy.deepcopy(old)
    approved["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com/1"}
    assert len(refused(changed(approved, group="x.k8s.io"), approved)) == 1


# --- the end ----------------------------------------------------------------------------------------


def test_a_deleted_definition_waits_for_its_objects() -> None:
    made = created()
    made["metadata"] |= {"deletionTimestamp": LATER, "finalizers": ["example.com/mine"]}
    mark_deleted(made)
    mark_deleted(made)
    assert made["metadata"]["finalizers"] == ["example.com/mine", "customresourcecleanup.apiextensions.k8s.io"]
    assert condition(made, "Terminating") == {
        "status": "True",
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        "lastTransitionTime": LATER,
    }
    made["status"] = terminating(made, conditions.IN_PROGRESS, "2024-01-03T00:00:00Z")
    assert condition(made, "Terminating") == {
        "status": "True",
        "reason": "InstanceDeletionInProgress",
        "message": "CustomResource deletion is in progress",
        "lastTransitionTime": LATER,
    }
    mark_deleted(made)
    assert condition(made, "Terminating")["reason"] == "InstanceDeletionInProgress"
    made["status"] = terminating(made, conditions.COMPLETED, "2024-01-04T00:00:00Z")
    assert condition(made, "Terminating")["status"] == "False"
    assert with_status(made, [], "2024-01-05T00:00:00Z") == made["status"]
