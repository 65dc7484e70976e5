"""Definitions whose schemas say the same share what these are compiled to, as long as there are any."""

from __future__ import annotations

import gc

from definitions import INTEGER, STRING, version

from farflung.hub.catalog.custom_kinds import COMPILED, DefinitionVersion


def test_versions_with_the_same_schema_are_compiled_once() -> None:
    one, another = DefinitionVersion(version("v1", a=STRING)), DefinitionVersion(version("v2", a=STRING))
    assert one.structural is another.structural


def test_versions_with_other_schemas_do_not_share() -> None:
    one, another = DefinitionVersion(version(a=STRING)), DefinitionVersion(version(a=INTEGER))
    assert one.structural is not another.structural
    assert not one.structural.validate({"spec": {"a": "x"}})
    assert another.structural.validate({"spec": {"a": "x"}})


def test_a_schema_without_definitions_is_dropped() -> None:
    def known() -> list[bytes]:
        gc.collect()
        return list(COMPILED)

    before = known()
    used = DefinitionVersion(version(unlike_any_other=STRING))
    assert not used.structural.validate({"spec": {"unlike_any_other": "x"}})
    [digest] = set(known()) - set(before)
    del used
    assert digest not in known()
