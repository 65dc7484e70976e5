"""`farflung explain placement`: chosen or why not, and whether the scheduler has got that far."""

from __future__ import annotations

import orjson
import pytest
import yaml
from asked_hub import INVENTORY, AskedHub, placement
from msgspec.structs import replace

from farflung.apis.edge.names import EDGE_PLACEMENTS, SINGLE_PLACEMENT_SLICES
from farflung.apis.kcp.names import SYNC_TARGETS
from farflung.cli.explain_output import printed
from farflung.client.errors import Forbidden
from farflung.client.rest import Client
from farflung.controllers.edge_scheduler.decide import NOTHING_SELECTED
from farflung.inspect.explain import explain
from farflung.inspect.hub import HiddenError
from farflung.inspect.results import InspectError, as_document
from farflung.machinery.errors import Obj
from farflung.placement.resolve import NO_AUTHOR

ENTER = {"nonResourceURLs": ["/"], "verbs": ["access"]}
PROD = {"matchLabels": {"env": "prod"}}
COUNTED = {"status": {"matchingLocationCount": 0, "selectedObjectCount": 0}}
TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


async def furnished() -> AskedHub:
    """Two places: one with a good and a bad cluster, and one with other labels."""
    hub = await AskedHub.started()
    await hub.target("good", env="prod")
    await hub.target("taken", env="prod", taints=[TAINT])
    await hub.location("prod", {"env": "prod"}, env="prod")
    await hub.location("dev", {"env": "dev"}, env="dev")
    return hub


async def told(hub: AskedHub, name: str = "p", location: str = "") -> list[list[str]]:
    """The table for people, in cells; the id of the inventory's cluster is C."""
    answer = await explain(hub.asked, name, location)
    text = printed(answer, "table", detailed=bool(location)).replace(INVENTORY, "C")
    return [line.split(maxsplit=4) for line in text.splitlines()]


async def test_every_location_is_chosen_or_has_a_reason() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.schedule()
    answer = await explain(hub.asked, "p")
    head, *lines = printed(answer, "table").replace(INVENTORY, "C").splitlines()
    assert head.split() == ["WORKSPACE", "LOCATION", "SYNCTARGET", "CHOSEN", "REASON"]
    assert lines == [
        'C   dev        <none>       no       spec.locationSelectors[0]: the label env of the Location is "dev", '
        'not "prod"',
        "C   prod       good         yes",
        "C   prod       taken        no       the SyncTarget has the taint gpu=only:NoSchedule, which is not tolerated",
        "",
        "EdgePlacement p: 1 of 2 Locations chosen, 1 matching; 1 destination.",
        "Author of the spec: kcp-admin",
        "Status now: Ready=True (Resolved), 1 matching, of generation 1; up to date",
        "Slices now: 1 destination in 1 slice; up to date",
    ]
    assert hub.transport.writes == []


async def test_a_placement_that_selects_no_object_says_so() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.client.patch(EDGE_PLACEMENTS, "p", COUNTED, subresource="status")
    await hub.schedule()
    answer = await explain(hub.asked, "p")
    assert as_document(answer)["summary"]["selected"] == 0
    assert printed(answer, "table").splitlines()[-3:-1] == [
        "Status now: Ready=False (NothingSelected), 1 matching, 0 objects selected, of generation 1; up to date",
        f"Problem now: NothingSelected: {NOTHING_SELECTED}",
    ]


async def test_a_reason_that_is_said_of_the_only_target_is_not_said_twice() -> None:
    hub = await AskedHub.started()
    await hub.target("one", taints=[TAINT])
    await hub.location("here", {})
    await hub.place(placement("p", {}))
    rows = await told(hub)
    assert [row[:4] for row in rows[1:2]] == [["C", "here", "one", "no"]]
    assert rows[2] == []


async def test_locations_that_lose_the_choice_are_told_so() -> None:
    hub = await furnished()
    await hub.target("far", env="dev")
    await hub.place(placement("p", {}, numberOfLocations=1))
    rows = await told(hub)
    assert rows[1:4] == [
        ["C", "dev", "far", "yes"],
        ["C", "prod", "<none>", "no", "spec.numberOfLocations is 1, and other Locations come first"],
        ["C", "prod", "taken", "no", "the SyncTarget has the taint gpu=only:NoSchedule, which is not tolerated"],
    ]


async def test_how_many_locations_are_wanted_is_told() -> None:
    hub = await furnished()
    await hub.place(placement("p", {}, numberOfLocations=7))
    answer = await explain(hub.asked, "p")
    assert as_document(answer)["summary"] == {
        "locations": 2,
        "matching": 2,
        "wanted": 7,
        "chosen": 1,
        "leftOut": 0,
        "destinations": 1,
    }
    assert "EdgePlacement p: 1 of 2 Locations chosen, 2 matching, 7 wanted; 1 destination." in printed(answer, "table")


async def test_one_location_is_told_of_in_detail() -> None:
    hub = await furnished()
    await hub.target("other", env="dev")
    await hub.place(placement("p", {"matchLabels": {"env": "none"}}, PROD))
    answer = await explain(hub.asked, "p", "prod")
    assert [one["name"] for one in as_document(answer)["locations"]] == ["prod"]
    lines = [line.rstrip() for line in printed(answer, "table", detailed=True).splitlines()]
    assert lines[0:7] == [
        "Location:    prod",
        f"Workspace:   {INVENTORY}",
        "Labels:      env=prod",
        "Taints:      <none>",
        "Chosen:      yes",
        "",
        "SELECTOR                    MATCHES   REASON",
    ]
    assert lines[7].endswith('no        the label env of the Location is "prod", not "none"')
    assert lines[8] == "spec.locationSelectors[1]   yes"
    rows = {line.split()[0]: line.split(maxsplit=4)[3:] for line in lines[11:14]}
    assert rows == {
        "good": ["yes"],
        "other": ["no", "the Location's spec.instanceSelector does not select it"],
        "taken": ["no", "the SyncTarget has the taint gpu=only:NoSchedule, which is not tolerated"],
    }


async def test_a_location_can_be_named_with_its_cluster() -> None:
    hub = await furnished()
    await hub.place(placement("p", {}))
    for workspace in (hub.cluster, INVENTORY):
        assert len(as_document(await explain(hub.asked, "p", f"{workspace}:prod"))["locations"]) == 1
    with pytest.raises(InspectError, match="Location elsewhere:prod not found"):
        await explain(hub.asked, "p", "elsewhere:prod")


async def test_it_says_what_the_scheduler_has_still_to_do() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    fresh = await explain(hub.asked, "p")
    assert printed(fresh, "table").splitlines()[-3:] == [
        "Status now: <none>; the scheduler is behind or not running",
        "Slices now: <none>; the scheduler is behind or not running",
        f"+ {INVENTORY}   prod   good",
    ]
    await hub.schedule()
    dev = placement("p", {"matchLabels": {"env": "dev"}})
    await hub.client.patch(EDGE_PLACEMENTS, "p", {"spec": dev["spec"]})
    stale = await explain(hub.asked, "p")
    assert [as_document(stale)["now"][key] for key in ("statusIsCurrent", "slicesAreCurrent", "missing")] == [
        False,
        False,
        [],
    ]
    assert printed(stale, "table").splitlines()[-1] == f"- {INVENTORY}   prod   good"
    await hub.schedule()
    settled = await explain(hub.asked, "p")
    assert [as_document(settled)["now"][key] for key in ("statusIsCurrent", "slicesAreCurrent", "surplus")] == [
        True,
        True,
        [],
    ]


async def test_a_slice_that_another_client_edited_is_not_current() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.schedule()
    await hub.client.patch(SINGLE_PLACEMENT_SLICES, "p", {"destinations": []})
    now = as_document(await explain(hub.asked, "p"))["now"]
    assert (now["statusIsCurrent"], now["slicesAreCurrent"]) == (True, False)


async def test_what_is_there_already_may_stay_as_the_scheduler_sees_it() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.schedule()
    await hub.inventory.patch(SYNC_TARGETS, "good", {"spec": {"taints": [TAINT]}})
    assert as_document(await explain(hub.asked, "p"))["summary"]["destinations"] == 1
    await hub.inventory.patch(SYNC_TARGETS, "good", {"spec": {"taints": [{**TAINT, "effect": "NoExecute"}]}})
    assert as_document(await explain(hub.asked, "p"))["summary"]["destinations"] == 0


async def test_a_placement_that_cannot_be_understood_names_the_path() -> None:
    hub = await furnished()
    await hub.place(placement("p", {"matchExpressions": [{"key": "env", "operator": "Is", "values": ["x"]}]}))
    await hub.schedule()
    answer = await explain(hub.asked, "p", "prod")
    problem = (
        'spec.locationSelectors[0].matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator'
    )
    assert as_document(answer)["problem"] == problem
    lines = printed(answer, "table", detailed=True).splitlines()
    assert lines[0] == f"EdgePlacement p is invalid, and its slices do not change: {problem}"
    assert lines[1:] == [
        "Author of the spec: kcp-admin",
        "Status now: Ready=False (InvalidSpec), 0 matching, of generation 1; up to date",
        f"Problem now: InvalidSpec: {problem}",
        "Slices now: <none>; up to date",
    ]


async def test_programs_get_the_same_in_json_and_yaml() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    answer = await explain(hub.asked, "p")
    assert orjson.loads(printed(answer, "json")) == yaml.safe_load(printed(answer, "yaml")) == as_document(answer)
    prod: Obj = as_document(answer)["locations"][1]
    assert [(one["name"], one["chosen"]) for one in prod["syncTargets"]] == [("good", True), ("taken", False)]


async def test_a_placement_or_an_api_that_is_not_there_is_a_sentence() -> None:
    hub = await furnished()
    with pytest.raises(InspectError, match="EdgePlacement p not found in the workspace root:web"):
        await explain(hub.asked, "p")
    hub.client = hub.inventory
    with pytest.raises(InspectError, match=r"`kubectl kcp bind apiexport root:espw:edge.kcp.io` in that workspace"):
        await explain(hub.asked, "p")


# --- rights ---------------------------------------------------------------------------------------


def _rule(verb: str, resource: str, *names: str) -> Obj:
    return {"apiGroups": ["apis.kcp.io"], "resources": [resource], "verbs": [verb], "resourceNames": list(names)}


async def test_a_user_that_may_not_read_the_inventory_learns_the_missing_right() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    with pytest.raises(Forbidden, match='User "somebody" cannot get resource "edgeplacements"'):
        await explain(hub.asked_by_somebody, "p")
    read = {"apiGroups": ["edge.kcp.io"], "resources": ["*"], "verbs": ["get", "list"]}
    await hub.grant("root:web", "read", ENTER, read)
    with pytest.raises(
        HiddenError, match=r'"get" on apiexports of apis.kcp.io, for the name scheduling.kcp.io, in the'
    ):
        await explain(hub.asked_by_somebody, "p")
    names = ("scheduling.kcp.io", "workload.kcp.io")
    await hub.grant("root", "find", _rule("get", "apiexports", *names))
    with pytest.raises(
        HiddenError, match=r'"list" on apiexports/content of apis.kcp.io, for the name scheduling.kcp.io'
    ):
        await explain(hub.asked_by_somebody, "p")
    await hub.grant("root", "locations", _rule("list", "apiexports/content", names[0]))
    with pytest.raises(HiddenError, match=r"the SyncTargets of all workspaces.*for the name workload.kcp.io"):
        await explain(hub.asked_by_somebody, "p")
    await hub.grant("root", "targets", _rule("list", "apiexports/content", names[1]))
    await hub.schedule()
    (remark,) = (found := await explain(hub.asked_by_somebody, "p")).remarks
    assert remark.startswith(
        f"you may not review whether kcp-admin may place on the Locations in {INVENTORY}: this needs permission to "
        "create subjectaccessreviews and to list clusterroles there; so the scheduler may decide otherwise. "
        "The server says: "
    )
    assert printed(found, "table").endswith(f"up to date\n{remark}")
    assert replace(found, remarks=[]) == await explain(hub.asked, "p")
    review = {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
    roles = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["list"]}
    await hub.grant(INVENTORY, "review", ENTER, review, roles)
    assert await explain(hub.asked_by_somebody, "p") == await explain(hub.asked, "p")


async def test_locations_that_the_author_may_not_use_are_left_out() -> None:
    hub = await furnished()
    await hub.target("far", env="dev")
    edit = {"apiGroups": ["edge.kcp.io"], "resources": ["edgeplacements"], "verbs": ["*"]}
    await hub.grant("root:web", "edit", ENTER, edit)
    somebody = Client(hub.asked_by_somebody.workspace.transport, hub.client.prefix)
    await somebody.create(EDGE_PLACEMENTS, placement("p", {}))
    await hub.schedule()
    answer = await explain(hub.asked, "p")
    assert [(one.name, one.chosen, one.left_out, one.reason) for one in answer.locations] == [
        ("dev", False, True, "the author may not place on it"),
        ("prod", False, True, "the author may not place on it"),
    ]
    assert printed(answer, "table").splitlines()[-5:-2] == [
        "EdgePlacement p: 0 of 2 Locations chosen, 0 matching, 2 left out; 0 destinations.",
        "Author of the spec: somebody",
        "Status now: Ready=False (PlacingNotAllowed), 0 matching, of generation 1; up to date",
    ]
    rule = {"apiGroups": ["scheduling.kcp.io"], "resources": ["locations"], "verbs": ["place"]}
    await hub.grant(INVENTORY, "place", ENTER, {**rule, "resourceNames": ["prod", "elsewhere"]})
    answer = await explain(hub.asked, "p")
    assert [(one.name, one.chosen, one.left_out) for one in answer.locations] == [
        ("dev", False, True),
        ("prod", True, False),
    ]
    assert [one.location_name for one in answer.now.missing] == ["prod"]
    await hub.schedule()
    status = (await explain(hub.asked, "p")).now.status
    assert status["matchingLocationCount"] == 1
    (ready,) = status["conditions"]
    assert (ready["status"], ready["reason"]) == ("True", "Resolved")
    assert ready["message"].startswith('matching Locations are left out, because the author of the spec, "somebody", ')


async def test_a_placement_without_an_author_is_explained_with_the_command_that_claims_it() -> None:
    hub = await furnished()
    await hub.place(placement("p", PROD))
    await hub.forget_author()
    await hub.schedule()
    answer = await explain(hub.asked, "p")
    assert [(one.name, one.chosen, one.reason) for one in answer.locations][1:] == [("prod", False, NO_AUTHOR)]
    claim = "Author of the spec: not recorded; to become it: kubectl annotate edgeplacement p edge.kcp.io/author=me"
    lines = printed(answer, "table").splitlines()
    status = "Status now: Ready=False (AuthorUnknown), 1 matching, of generation 1; up to date"
    assert lines[lines.index(claim) + 1] == status
