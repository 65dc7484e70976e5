import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.machinery.errors import ApiError
from farflung.machinery.selectors import parse_fields, parse_labels

LABELS = {"env": "prod", "tier": "web", "n": "12", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("env=prod", True),
        ("env==prod", True),
        ("env!=prod", False),
        ("env", True),
        ("!env", False),
        ("!nope", True),
        ("env in (prod,dev)", True),
        ("env in (dev, test)", False),
        ("env notin (dev)", True),
        ("nope notin (dev)", True),
        ("nope!=x", True),
        ("empty=", True),
        ("empty in ()", True),
        ("empty in (a,)", True),
        ("n>11", True),
        ("n>12", False),
        ("n<13", True),
        ("env>1", False),
        (" env = prod , tier ", True),
        ("env=prod,tier=db", False),
        ("in in (in)", False),
    ],
)
def test_a_label_selector_selects(selector: str, matches: bool) -> None:
    assert parse_labels(selector).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("t=x,", "found '', expected: identifier after ','"),
        ("t=x y", "found 'y', expected: ',' or 'end of string'"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("t in x", "unable to parse requirement: found 'x' expected: '('"),
        ("t in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!t=x", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("t notin", "unable to parse requirement: found '' expected: '('"),
        (
            "t>abc",
            'unable to parse requirement: values[0]: Invalid value: "abc": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_a_bad_label_selector_says_what_was_expected_where(selector: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_labels(selector)
    assert refused.value.code == 400
    assert refused.value.message == message


@given(st.text(alphabet="ab=!<>(), in\\.x/-_\n", max_size=40))
def test_any_text_is_a_selector_or_a_400(text: str) -> None:
    for parse in (parse_labels, parse_fields):
        try:
            parse(text)
        except ApiError as refused:
            assert refused.code == 400


keys = st.sampled_from(["a", "b", "c"])
values = st.sampled_from(["x", "y", "", "5", "7", "0"])
numbers = st.sampled_from(["0", "5", "6", "7"])
operators = st.sampled_from(["=", "!=", " in ", " notin ", "", "!", ">", "<"])


@given(
    st.lists(st.tuples(keys, operators, st.lists(values, min_size=1, max_size=4), numbers), max_size=6),
    st.dictionaries(keys, values),
)
def test_a_selector_is_the_conjunction_of_its_plainly_stated_terms(
    terms: list[tuple[str, str, list[str], str]], labels: dict[str, str]
) -> None:
    written, holds = [], True
    for key, operator, wanted, bound in terms:
        number = int(labels[key]) if labels.get(key) in ("5", "7", "0") else None
        match operator:
            case ">":
                written.append(f"{key}>{bound}")
                holds = holds and number is not None and number > int(bound)
            case "<":
                written.append(f"{key}<{bound}")
                holds = holds and number is not None and number < int(bound)
            case "=":
                written.append(f"{key}={wanted[0]}")
                holds = holds and labels.get(key) == wanted[0]
            case "!=":
                written.append(f"{key}!={wanted[0]}")
                holds = holds and labels.get(key) != wanted[0]
            case " in ":
                written.append(f"{key} in ({','.join(wanted)})")
                holds = holds and labels.get(key) in wanted
            case " notin ":
                written.append(f"{key} notin ({','.join(wanted)})")
                holds = holds and labels.get(key) not in wanted
            case "":
                written.append(key)
                holds = holds and key in labels
            case "!":
                written.append(f"!{key}")
                holds = holds and key not in labels
    assert parse_labels(",".join(written)).matches(labels) is holds


def test_a_field_selector_compares_texts() -> None:
    fields = {"metadata.name": "a", "status.phase": "Running"}
    assert parse_fields("metadata.name=a,status.phase!=Pending").matches(fields.__getitem__)
    assert not parse_fields("metadata.name==b").matches(fields.__getitem__)
    assert parse_fields("metadata.name=a,").matches(fields.__getitem__)


@given(
    st.lists(st.tuples(keys, st.sampled_from(["=", "==", "!="]), values), max_size=5),
    st.fixed_dictionaries(dict.fromkeys("abc", values)),
)
def test_a_field_selector_is_the_conjunction_of_its_terms(
    terms: list[tuple[str, str, str]], fields: dict[str, str]
) -> None:
    holds = all((fields[name] == value) == (operator != "!=") for name, operator, value in terms)
    written = ",".join(f"{name}{operator}{value}" for name, operator, value in terms)
    assert parse_fields(written).matches(fields.__getitem__) is holds


def test_an_object_costs_what_it_has_labels_however_long_the_selector_is() -> None:
    """If it cost as much as there are terms, this would take minutes."""
    terms = [f"!a{number},b{number}!=x,c notin (v{number})" for number in range(5000)]
    selector = parse_labels(",".join(terms))
    objects = [{"a": "1", "c": f"w{number}", f"b{number}": "y"} for number in range(20_000)]
    assert all(map(selector.matches, objects))
    assert not parse_labels(",".join(f"b{number}" for number in range(5000))).matches(objects[0])


def test_a_comma_in_a_field_value_is_escaped() -> None:
    assert parse_fields("metadata.name=a\\,b").exactly("metadata.name") == "a,b"


def test_a_field_selector_without_an_operator_is_not_understood() -> None:
    with pytest.raises(ApiError, match="invalid selector: 'foo'; can't understand 'foo'"):
        parse_fields("foo")


@pytest.mark.parametrize(
    ("value", "greater", "less"),
    [("6", True, False), ("4", False, True), ("5", False, False), ("1_0", False, False), ("x", False, False)],
)
def test_only_numbers_are_greater_or_less(value: str, greater: bool, less: bool) -> None:
    assert parse_labels("n>5").matches({"n": value}) is greater
    assert parse_labels("n<5").matches({"n": value}) is less
