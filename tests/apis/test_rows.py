"""Tables of rows: what each kind of row means for absent, empty and wrong fields, and the order of errors."""

from farflung.apis.rows import (
    ITSELF,
    Always,
    ChangeCheck,
    Check,
    ContextCheck,
    Default,
    Defaults,
    Each,
    Enum,
    FirstError,
    ForbiddenField,
    Format,
    IfAbsent,
    IfPresent,
    InvalidIf,
    MaxItems,
    NotNegative,
    Optional,
    Pointer,
    Range,
    Refused,
    Required,
    RequiredPointer,
    Struct,
    Table,
    Unique,
    Unless,
    Validation,
    When,
    Where,
    immutable,
    not_negative,
)
from farflung.apis.validation import Errors
from farflung.machinery import names
from farflung.machinery.errors import Obj, field_forbidden, invalid_value


def told(table: Validation, obj: Obj) -> list[str]:
    return [str(error) for error in table(obj)]


def test_a_required_field_must_not_be_empty_and_is_then_checked() -> None:
    table = Validation(Required("spec.name", Format(names.dns_label), detail="give it a name"))
    assert told(table, {}) == told(table, {"spec": {"name": ""}}) == ["spec.name: Required value: give it a name"]
    assert told(table, {"spec": {"name": "a"}}) == []
    assert told(table, {"spec": {"name": "A"}})[0].startswith('spec.name: Invalid value: "A": a lowercase RFC 1123')


def test_a_required_pointer_may_be_empty() -> None:
    table = Validation(RequiredPointer("spec.queuing"))
    assert told(table, {"spec": {}}) == ["spec.queuing: Required value"]
    assert told(table, {"spec": {"queuing": {}}}) == []


def test_an_empty_field_is_checked_by_a_pointer_and_not_by_an_optional_row() -> None:
    rule = Enum("A", "B")
    wrong = ['policy: Unsupported value: "": supported values: "A", "B"']
    for obj, optional, pointer, always in (
        ({}, [], [], wrong),
        ({"policy": ""}, [], wrong, wrong),
        ({"policy": "A"}, [], [], []),
    ):
        assert told(Validation(Optional("policy", rule)), obj) == optional
        assert told(Validation(Pointer("policy", rule)), obj) == pointer
        assert told(Validation(Always("policy", rule)), obj) == always


def test_numbers_have_bounds() -> None:
    table = Validation(Pointer("count", NotNegative), Always("share", Range(1, 100), zero=0))
    assert told(table, {"count": -1, "share": 101}) == [
        "count: Invalid value: -1: must be greater than or equal to 0",
        "share: Invalid value: 101: must be between 1 and 100, inclusive",
    ]
    assert told(table, {"share": 100}) == []


def test_errors_of_entries_follow_each_other_by_entry() -> None:
    table = Validation(Each("ports", Optional("name", Unique()), Required("protocol")))
    ports = [{"name": "a"}, {"name": "b", "protocol": "TCP"}, {"name": "a"}]
    assert told(table, {"ports": ports}) == [
        "ports[0].protocol: Required value",
        'ports[2].name: Duplicate value: "a"',
        "ports[2].protocol: Required value",
    ]


def test_equal_values_in_different_lists_are_no_duplicates() -> None:
    table = Validation(Each("outer", Each("inner", Unique())))
    assert told(table, {"outer": [{"inner": ["a"]}, {"inner": ["a"]}]}) == []
    assert told(table, {"outer": [{"inner": ["a", "a"]}]}) == ['outer[0].inner[1]: Duplicate value: "a"']


def test_entries_may_be_unique_by_several_members() -> None:
    table = Validation(Each("taints", Unique("key", "effect", detail="must differ")))
    assert told(table, {"taints": [{"key": "a"}, {"key": "a", "effect": "x"}, {"effect": "x"}]}) == []
    assert told(table, {"taints": [{"key": "a"}, {"key": "a"}]}) == [
        'taints[1]: Duplicate value: {"key":"a"}: must differ'
    ]


def test_only_the_first_error_of_a_value_is_reported() -> None:
    table = Validation(
        Pointer(
            "user",
            FirstError(InvalidIf("not {v}", "is empty"), InvalidIf(str.isspace, "is blank"), Format(names.dns_label)),
        )
    )
    assert [told(table, {"user": user}) for user in ("", " ", "a")] == [
        ['user: Invalid value: "": is empty'],
        ['user: Invalid value: " ": is blank'],
        [],
    ]
    assert len(told(table, {"user": "A"})) == 1


def test_only_well_formed_texts_are_checked_further() -> None:
    table = Validation(Each("names", Format(names.dns_label, Unique()), indexed=False))
    assert [text.split(":")[1] for text in told(table, {"names": ["A", "A", "a", "a"]})] == [
        " Invalid value", " Invalid value", " Duplicate value",
    ]  # fmt: skip


def test_an_error_may_name_the_object_instead_of_its_field() -> None:
    table = Validation(Each("gates", Required("name", named=ITSELF)), Struct("os", Required("name", named=ITSELF)))
    assert told(table, {"gates": [{}], "os": {}}) == ["gates[0]: Required value", "os: Required value"]


def test_entries_of_a_list_that_is_too_long_are_not_checked() -> None:
    table = Validation(Each("hosts", Enum("a"), most=2), Pointer("zones", MaxItems(1)))
    assert told(table, {"hosts": ["x", "y", "z"], "zones": ["p", "q"]}) == [
        "hosts: Too many: 3: must have at most 2 items",
        "zones: Too many: 2: must have at most 1 item",
    ]
    assert told(table, {"hosts": ["x"]}) == ['hosts[0]: Unsupported value: "x": supported values: "a"']


def test_rows_may_depend_on_the_value_of_a_field() -> None:
    table = Validation(
        When("type", "Exempt", Pointer("limited", ForbiddenField("must be nil"))),
        Unless("type", ("Exempt", ""), RequiredPointer("limited")),
    )
    assert told(table, {"type": "Exempt", "limited": {}}) == ["limited: Forbidden: must be nil"]
    assert told(table, {"type": "Limited"}) == ["limited: Required value"]
    assert told(table, {}) == []


def test_rows_may_depend_on_whether_a_field_is_present() -> None:
    table = Validation(
        IfPresent("spec.port", IfAbsent("spec.protocol", Required("spec.scheme"))),
        IfAbsent("spec.port", Pointer("spec.endPort", Refused("needs `port`"))),
    )
    assert told(table, {"spec": {"port": 0}}) == ["spec.scheme: Required value"]
    assert told(table, {"spec": {"port": 1, "protocol": ""}}) == []
    assert told(table, {"spec": {"endPort": 0}}) == ["spec.endPort: Invalid value: 0: needs `port`"]
    assert told(table, {}) == []


def test_rows_may_depend_on_a_function_of_the_object() -> None:
    table = Validation(
        Each("ports", Where(lambda port: port["number"] > 9, Required("name"), otherwise=(Required("protocol"),)))
    )
    assert told(table, {"ports": [{"number": 10}, {"number": 9}]}) == [
        "ports[0].name: Required value",
        "ports[1].protocol: Required value",
    ]


def test_a_check_may_read_the_context_of_the_call() -> None:
    def check(name: str, field: str, errors: Errors, known: set[str]) -> None:
        if name not in known:
            errors.append(invalid_value(field, name, "unknown"))

    errors: Errors = []
    Table(Each("mounts", Required("name", ContextCheck(check))))(
        {"mounts": [{"name": "a"}, {"name": "b"}]}, "spec", errors, {"a"}
    )
    assert [str(error) for error in errors] == ['spec.mounts[1].name: Invalid value: "b": unknown']


def test_a_row_may_compare_the_new_object_with_the_old_one() -> None:
    def grows(new: Obj, old: Obj, errors: Errors) -> None:
        if new["count"] < old["count"]:
            errors.append(invalid_value("count", new["count"], "cannot shrink"))

    table = Validation(not_negative("count", "other"), ChangeCheck(grows))
    assert [str(error) for error in table({"count": -1}, {"count": 2})] == [
        "count: Invalid value: -1: must be greater than or equal to 0",
        "count: Invalid value: -1: cannot shrink",
    ]
    assert table({"count": 3, "other": 0}, {"count": 2}) == []


def test_a_table_is_a_check_of_a_part_and_names_fields_under_its_path() -> None:
    def check(part: Obj, path: str, errors: Errors) -> None:
        errors.append(field_forbidden(path, f"has {len(part)} members"))

    part = Table(Required("name"), Check(check))
    table = Validation(Struct("spec.one", part), Each("spec.many", part))
    assert told(table, {"spec": {"one": {}, "many": [{"name": "a"}]}}) == [
        "spec.one.name: Required value",
        "spec.one: Forbidden: has 0 members",
        "spec.many[0]: Forbidden: has 1 members",
    ]
    errors: Errors = []
    part({}, "elsewhere", errors)
    assert [error.field for error in errors] == ["elsewhere.name", "elsewhere"]


def test_defaults_fill_in_absent_fields_and_create_the_structs_around_them() -> None:
    defaults = Defaults(
        Default("spec.strategy.type", "RollingUpdate"),
        When("spec.strategy.type", "RollingUpdate", Default("spec.strategy.rollingUpdate.maxSurge", 1)),
        Each("spec.ports", Default("protocol", "TCP")),
        Struct("spec.limited", Default("shares", 30)),
        Default("spec.mode", "Immediate", empty=True),
        Default("status", {}),
    )
    first: Obj = {}
    defaults(first)
    assert first == {
        "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, "mode": "Immediate"},
        "status": {},
    }
    second: Obj = {"spec": {"strategy": {"type": "Recreate"}, "ports": [{}], "limited": {"shares": 0}, "mode": ""}}
    defaults(second)
    assert second["spec"] == {
        "strategy": {"type": "Recreate"},
        "ports": [{"protocol": "TCP"}],
        "limited": {"shares": 0},
        "mode": "Immediate",
    }
    assert first["status"] is not second["status"], "objects do not share a default"


def test_a_null_field_gets_the_default_and_an_empty_one_keeps_its_value() -> None:
    defaults = Defaults(Default("scope", "Cluster"), Default("shares", 30))
    obj: Obj = {"scope": None, "shares": 0}
    defaults(obj)
    assert obj == {"scope": "Cluster", "shares": 0}


def test_an_immutable_field_keeps_its_value() -> None:
    check = immutable("spec.selector", "data")
    assert check({"spec": {"selector": 1}}, {"spec": {"selector": 1}}) == []
    assert [str(error) for error in check({}, {"spec": {"selector": 1}})] == [
        "spec.selector: Invalid value: null: field is immutable"
    ]
    assert [str(error) for error in immutable("type", zero="")({}, {"type": "a"})] == [
        'type: Invalid value: "": field is immutable'
    ]
