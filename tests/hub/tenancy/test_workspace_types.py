"""Types of workspaces: what they extend, allow and bring."""

from __future__ import annotations

import pytest

from farflung.apis.kcp.names import ExportReference
from farflung.hub.tenancy.paths import TypeReference
from farflung.hub.tenancy.workspace_types import (
    MAX_EXTENDED,
    TypeLimit,
    WorkspaceType,
    WorkspaceTypeRefused,
    bindings,
    check_relation,
    find_type,
    initializers,
    read_type,
    type_lineage,
)


def reference(text: str) -> TypeReference:
    path, _, name = text.rpartition(":")
    return TypeReference(name, path)


class Types:
    """Types by path and name."""

    def __init__(self, *types: WorkspaceType) -> None:
        self._types = {(one.path, one.name): one for one in types}

    def __call__(self, path: str, name: str) -> WorkspaceType | None:
        return self._types.get((path, name))


def made(
    name: str, *extends: str, parents: TypeLimit | None = None, children: TypeLimit | None = None
) -> WorkspaceType:
    return WorkspaceType(
        "abc", "root:a", name, extends=tuple(map(reference, extends)), parents=parents, children=children
    )


PLAIN = made("plain")


def test_a_type_is_what_it_extends_and_itself() -> None:
    types = Types(made("a", "root:a:b", "root:a:c"), made("b", "root:a:d"), made("c", "root:a:d"), made("d"))
    top = types("root:a", "a")
    assert top is not None
    assert [one.name for one in type_lineage(top, types)] == ["b", "d", "c", "a"]


def test_types_that_go_round_in_circles_are_refused() -> None:
    types = Types(made("a", "root:a:b"), made("b", "root:a:a"))
    top = types("root:a", "a")
    assert top is not None
    with pytest.raises(WorkspaceTypeRefused) as refused:
        type_lineage(top, types)
    assert str(refused.value) == "circular dependency detected in workspace type root:a:a: root:a:a -> root:a:b"


def test_a_type_that_extends_itself_is_refused() -> None:
    loop = made("loop", "root:a:loop")
    with pytest.raises(
        WorkspaceTypeRefused, match="circular dependency detected in workspace type root:a:loop: root:a:loop"
    ):
        type_lineage(loop, Types(loop))


def test_a_type_that_extends_a_missing_one_is_refused() -> None:
    with pytest.raises(WorkspaceTypeRefused, match="unable to find inherited workspace type root:nosuch"):
        type_lineage(made("miss", "root:nosuch"), Types())


def test_a_very_long_line_of_types_is_refused_rather_than_followed() -> None:
    line = [made(f"t{at}", f"root:a:t{at + 1}") for at in range(10 * MAX_EXTENDED)]
    with pytest.raises(WorkspaceTypeRefused, match="unable to find inherited"):
        type_lineage(line[0], Types(*line))


def test_a_type_is_found_at_the_nearest_place() -> None:
    near, far = WorkspaceType("1", "root:a:b", "t"), WorkspaceType("2", "root", "t")
    assert find_type(reference("t"), ["root:a:b", "root:a", "root"], Types(near, far)) is near
    assert find_type(reference("t"), ["root:a", "root"], Types(near, far)) is far
    assert find_type(reference("root:t"), [], Types(near, far)) is far


@pytest.mark.parametrize(
    ("parent", "child", "told"),
    [
        (made("p"), made("c", parents=TypeLimit(True, ())), "workspace type root:a:c cannot have any parent"),
        (made("p", children=TypeLimit(True, ())), made("c"), "workspace type root:a:p cannot have any children"),
        (
            made("p"),
            made("c", parents=TypeLimit(False, ("root:x", "root:b"))),
            "workspace type root:a:c only allows [root:b root:x] parent workspaces, but parent type root:a:p only "
            "implements [root:a:p]",
        ),
        (
            made("p", children=TypeLimit(False, ("root:x",))),
            made("c"),
            "workspace type root:a:p only allows [root:x] child workspaces, but child type root:a:c only implements "
            "[root:a:c]",
        ),
    ],
)
def test_a_family_that_cannot_be_is_refused(parent: WorkspaceType, child: WorkspaceType, told: str) -> None:
    with pytest.raises(WorkspaceTypeRefused) as refused:
        check_relation([parent], [child])
    assert str(refused.value) == told


def test_what_is_extended_limits_as_well() -> None:
    base = made("base", parents=TypeLimit(True, ()))
    with pytest.raises(WorkspaceTypeRefused) as refused:
        check_relation([made("p")], [base, made("c", "root:a:base")])
    assert str(refused.value) == "workspace type root:a:c extends root:a:base, which cannot have any parent"


def test_a_child_that_extends_an_allowed_type_is_allowed() -> None:
    check_relation([made("p", children=TypeLimit(False, ("root:a:plain",)))], [PLAIN, made("c", "root:a:plain")])


def test_a_type_is_read_from_its_object() -> None:
    obj = {
        "metadata": {"name": "mine"},
        "spec": {
            "initializer": True,
            "extend": {"with": [{"name": "universal", "path": "root"}]},
            "defaultAPIBindings": [{"path": "root", "export": "tenancy.kcp.io"}],
            "additionalWorkspaceLabels": {"team": "x"},
            "limitAllowedChildren": {"none": True},
            "limitAllowedParents": {"types": []},
        },
    }
    read = read_type(obj, "abc", "root:wt")
    assert read.qualified == "root:wt:mine"
    assert read.children == TypeLimit(True, ())
    assert read.parents is None
    assert initializers([read]) == ["abc:mine", "system:apibindings"]
    assert bindings([read, read]) == [ExportReference("root", "tenancy.kcp.io")]
    assert str(read.default_child) == "root:universal"


def test_a_type_that_brings_nothing_needs_no_initializer() -> None:
    assert initializers([PLAIN]) == []
