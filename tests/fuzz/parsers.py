"""Every parser of input from clients, other servers and files, with the properties that hold for any input.

A check raises an error that the parser does not document, or AssertionError, if the input shows a bug.
"""

from __future__ import annotations

import base64
import json as standard_json
import math
import re
from ast import literal_eval
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import quote

import orjson
import yaml as pyyaml
from cel_closures import ClosureProgram
from cel_expressions import SOME_DATA, VARIABLES
from choices import Choices
from cryptography.hazmat.primitives.asymmetric import ec
from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointerException

from farflung.apis import definitions, wire
from farflung.apis.apiextensions import kinds as crd_kinds
from farflung.apis.apiextensions import validation as crd
from farflung.apis.metadata import OBJECT_META
from farflung.client import kubeconfig
from farflung.client.errors import KubeconfigError
from farflung.http.limits import Limits
from farflung.http.parser import Exchange, KnownHeads, RequestParser
from farflung.hub.auth import certificate_requests as csr
from farflung.hub.auth.authenticator import bearer_token
from farflung.hub.auth.signing_keys import SigningKeys, key_named_in
from farflung.hub.registry.read import decode_continue, encode_continue
from farflung.hub.request import negotiation, options
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.audit_policy import AuditPolicy, AuditPolicyError
from farflung.hub.request.target import Target, parse_query, route_of, target_of
from farflung.hub.request.user import User
from farflung.lib import yaml_loader
from farflung.machinery import jsonpath, jsonpath_edit, quantity, selectors, times
from farflung.machinery.cel import crd as crd_rules
from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language.budget import Meter, OverBudget
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library import KUBERNETES, addresses, conversions, semvers, string_format, urls
from farflung.machinery.cel.library import moments as moments_of_cel
from farflung.machinery.codec import json, protobuf, yaml
from farflung.machinery.errors import ApiError, Malformed
from farflung.machinery.fields import sets
from farflung.machinery.patch import apply, merge, strategic
from farflung.machinery.patch import json as json_patch
from farflung.machinery.schema.conform import compile as compile_conformer
from farflung.machinery.schema.structural import formats
from farflung.machinery.schema.structural.structural import compile_structural

Check = Callable[[bytes], None]


HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class ParserFuzz:
    """A fuzzer of one parser."""

    check: Check

    @property
    def name(self) -> str:
        return self.check.__name__.replace("_", "-")

    @property
    def corpus(self) -> list[bytes]:
        """Valid inputs, and each input that showed a bug."""
        return lines_of(HERE / "corpus" / f"{self.name}.txt")

    @property
    def words(self) -> list[bytes]:
        """Of the language that it reads."""
        return lines_of(HERE / "words" / f"{self.name}.txt")


def lines_of(file: Path) -> list[bytes]:
    return [literal_eval(line) for line in file.read_text().splitlines()] if file.exists() else []


# --- requests -------------------------------------------------------------------------------------

ROOMY: Final = Limits()
TIGHT: Final = Limits(request_line=50, header_bytes=80, header_count=4, body_bytes=30)


def http_requests(data: bytes) -> None:
    """Requests do not depend on how the bytes arrive, nor on earlier requests."""
    choices = Choices(data)
    limits, cut = choices.pick((ROOMY, TIGHT)), choices.below(256)
    sent = choices.rest()
    cut = cut * len(sent) // 256
    whole = requests_of([sent], limits)
    in_parts = requests_of([sent[:cut], sent[cut:]], limits)
    assert in_parts == whole or (limits is TIGHT and all(map(is_refused, (in_parts, whole))))  # by the first reason
    known = KnownHeads()
    assert requests_of([sent], limits, known) == whole
    assert requests_of([sent], limits, known) == whole


def requests_of(parts: Sequence[bytes], limits: Limits, known: KnownHeads | None = None) -> list[object]:
    """What the parser makes of the bytes: requests, and the state at the end or a refusal."""
    ready: list[Exchange] = []
    parser = RequestParser(limits, known or KnownHeads(), ready)
    end: object
    try:
        for part in parts:
            parser.feed(part)
        end = parser.finished or (parser.stage, parser.awaits_continue)
    except ApiError as refused:
        end = (refused.code, refused.message)
    for exchange in ready:
        assert len(exchange.request.body) <= limits.body_bytes
        assert len(exchange.request.path) + len(exchange.request.query) <= limits.request_line
    parser.close()
    return [*((exchange.request, exchange.modern) for exchange in ready), end]


def is_refused(outcome: list[object]) -> bool:
    return isinstance(outcome[-1], tuple) and isinstance(outcome[-1][1], str)


def paths(data: bytes) -> None:
    """The parts of a target name it: no part contains a slash, and the path made of them has the same target."""
    cluster, rest, _ = route_of(data.decode("latin-1"))
    assert "/" not in cluster or "%" in data.decode("latin-1")
    assert rest.startswith("/")
    target = target_of(cluster, rest)
    if target is None:
        return
    assert all("/" not in part for part in target[1:7])
    assert all((target.version, target.plural))
    assert target_of(cluster, path_of(target)) == target


def path_of(target: Target) -> str:
    parts = ["apis", target.group, target.version] if target.group else ["api", target.version]
    parts += ["watch"] * target.watch
    parts += ["namespaces", target.namespace] * bool(target.namespace)
    return "".join(
        f"/{quote(part, safe='')}" for part in (*parts, target.plural, target.name, target.subresource) if part
    )


def queries(data: bytes) -> None:
    choices = Choices(data)
    kind, flag = choices.pick(("CreateOptions", "PatchOptions", "UpdateOptions")), choices.pick((False, True))
    text = choices.rest().decode("latin-1")
    with refusals(400, 422):
        options.write_options(kind, text, apply=flag)
    with refusals(400, 422):
        found = options.list_options(text, watch=flag)
        assert -(2**63) <= found.limit < 2**63
        options.revision_of(found.resource_version)
    for name, value in parse_query(text).items():
        (name + value).encode()


def accept_headers(data: bytes) -> None:
    text = data.decode("latin-1")
    for custom in (True, False):
        for watch in (True, False):
            with refusals(406):
                negotiation.chosen(text, custom, not custom, not watch, watch)
    with refusals(406):
        negotiation.aggregated(text)
    clauses = negotiation.parse(text)
    assert all(0 <= clause.quality <= 1 for clause in clauses)


def continue_tokens(data: bytes) -> None:
    with refusals(400, 410):
        revision, start = decode_continue(data.decode("latin-1"))
        assert decode_continue(encode_continue(revision, start)) == (revision, start)


class refusals:
    """Suppress refusals with these codes; they can be answered."""

    def __init__(self, *codes: int) -> None:
        self._codes = codes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ApiError):
            return False
        assert error.code in self._codes, error
        orjson.dumps(error.status())
        return True


# --- selectors ------------------------------------------------------------------------------------

LABELS: Final = ({}, {"a": "b"}, {"a": "5", "b": "", "c/d": "x"})


def label_selectors(data: bytes) -> None:
    """A parsed selector says the same when it is written out."""
    text = data.decode("utf-8", "replace")
    with refusals(400):
        selector = selectors.parse_labels(text)
        again = selectors.parse_labels(",".join(map(written_requirement, selector.requirements)))
        assert again == selector
        for labels in LABELS:
            assert selector.matches(labels) == all(fulfilled(one, labels) for one in selector.requirements)


def written_requirement(one: selectors.Requirement) -> str:
    match one.operator:
        case "exists":
            return one.key
        case "!":
            return f"!{one.key}"
        case "gt" | "lt":
            return f"{one.key}{'>' if one.operator == 'gt' else '<'}{one.values[0]}"
    return f"{one.key} {one.operator} ({','.join(one.values)})"


def fulfilled(one: selectors.Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(one.key)
    match one.operator:
        case "exists":
            return value is not None
        case "!":
            return value is None
        case "notin":
            return value not in one.values
        case "in":
            return value in one.values
    if value is None or not value.isdigit():
        return False
    return int(value) > int(one.values[0]) if one.operator == "gt" else int(value) < int(one.values[0])


def field_selectors(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with refusals(400):
        selector = selectors.parse_fields(text)
        written = ",".join(f"{one.field}{'=' if one.equal else '!='}{escaped(one.value)}" for one in selector.terms)
        assert selectors.parse_fields(written) == selector
        selector.matches(lambda field: "x")


def escaped(value: str) -> str:
    return "".join(f"\\{char}" if char in "\\,=" else char for char in value)


# --- documents ------------------------------------------------------------------------------------


def json_bodies(data: bytes) -> None:
    """Exactly the JSON that Python reads is read, with the same values."""
    try:
        parsed = json.parse(data, typed=False)
    except Malformed as refused:
        assert refused.why
        assert not is_json(data), data
        return
    expected = standard_json.loads(
        data.decode(), parse_int=numeric, parse_float=numeric, object_pairs_hook=with_replaced_names
    )
    assert same(parsed.value, expected), (parsed.value, expected)
    assert json.parse(orjson.dumps(parsed.value)).value == parsed.value
    with suppress(Malformed):
        json.parse_object(data)


def with_replaced_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Names that differ only in half surrogate pairs are duplicates, of which the last one wins."""
    return {replaced(name): value for name, value in pairs}


def is_json(data: bytes) -> bool:
    """Whether it is JSON of numbers and depth that the hub supports, also where a duplicate field hides it."""
    try:
        value = standard_json.loads(
            data.decode(), parse_constant=refuse_constant, parse_float=finite, object_pairs_hook=values_of
        )
    except (ValueError, RecursionError):
        return False
    return depth_of(value) <= json.DEEPEST


def values_of(pairs: list[tuple[str, Any]]) -> list[Any]:
    return [value for _, value in pairs]


def finite(digits: str) -> float:
    if math.isinf(float(digits)):
        raise ValueError(digits)
    return float(digits)


def refuse_constant(text: str) -> None:
    raise ValueError(text)


def numeric(digits: str) -> int | float:
    if len(digits) < 25 and digits.lstrip("-").isdigit() and -(2**63) <= int(digits) < 2**64:
        return int(digits)
    return float(digits)


def depth_of(value: Any) -> int:
    deepest, level = 0, [value]
    while lists := [one for one in level if isinstance(one, list)]:
        level = [item for one in lists for item in one]
        deepest += 1
    return deepest


def same(one: Any, other: Any) -> bool:
    """Equal, with the types of numbers, and any half surrogate pair equal to U+FFFD."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return [*one] == [*other] and all(map(same, one.values(), other.values()))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == (replaced(other) if isinstance(other, str) else other))


def replaced(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not text.isascii() else text


def yaml_bodies(data: bytes) -> None:
    """The value is JSON, whose size is bounded by that of the document, and stays the same when it is written."""
    try:
        value = yaml.parse(data).value
    except Malformed as refused:
        assert refused.why
        return
    encoded = orjson.dumps({"value": value})
    assert len(encoded) <= 12 * len(data) + 2 * yaml.MAX_ALIASED
    assert json.parse(encoded).value == yaml.parse(encoded).value == {"value": value}


def yaml_files(data: bytes) -> None:
    with suppress(pyyaml.YAMLError):
        yaml_loader.load(data)


KINDS: Final = (
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.core.v1.ConfigMapList",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
)


def protobuf_bodies(data: bytes) -> None:
    """A message that is read can be written, and then stays as it is."""
    definition = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    with refusals(400):
        obj = protobuf.decode(protobuf.MAGIC + data[1:], definition, wire.MESSAGES).obj
        if obj.get("kind", "") in ("", definition.rpartition(".")[2]):
            settled = reread(obj, definition)
            assert reread(settled, definition) == settled


def reread(obj: dict[str, Any], definition: str) -> dict[str, Any]:
    return protobuf.decode(protobuf.encode(obj, definition, wire.MESSAGES), definition, wire.MESSAGES).obj


# --- values ---------------------------------------------------------------------------------------


def quantities(data: bytes) -> None:
    """The canonical text is canonical and has the same value."""
    text = data.decode("utf-8", "replace")
    try:
        parsed = quantity.parse(text)
    except quantity.QuantityError:
        return
    canonical = quantity.canonical(text)
    assert quantity.canonical(canonical) == canonical
    assert quantity.parse(canonical) == parsed
    assert quantity.parse(str(parsed)) == parsed
    exact = exact_quantity(text)
    assert exact is None or abs(parsed.nanos) == math.ceil(abs(exact) * 10**9)


#: the number and the suffix; "." is a zero
EXACT: Final = re.compile(r"([+-]?)([0-9]*\.?[0-9]*)([numkKMGTPE]?i?|[eE]([+-]?[0-9]+))")


def exact_quantity(text: str) -> Fraction | None:
    """The value; None if it is beyond 64 bits, where binary quantities are cut."""
    found = EXACT.fullmatch(text)
    assert found is not None
    sign, digits, suffix, exponent = found.groups()
    value = Fraction(f"{sign}0{digits}0" if "." in digits else f"{sign}0{digits}")
    if suffix in quantity.BINARY_SUFFIXES:
        value *= 2 ** quantity.BINARY_SUFFIXES[suffix]
        return value if abs(value) < 2**62 else None
    return value * Fraction(10) ** (int(exponent) if exponent else quantity.DECIMAL_SUFFIXES[suffix])


def moments(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse, canonical in ((times.parse, times.canonical_seconds), (times.parse_micros, times.canonical_micros)):
        try:
            moment = parse(text)
        except times.TimeError as refused:
            assert str(refused).startswith("parsing time ")
            continue
        shown = canonical(text)
        assert (shown is None) == (moment == times.ZERO_TIME)
        if shown is not None:
            assert canonical(shown) == shown
            assert parse(shown) == (
                moment.replace(microsecond=0) if parse is times.parse and len(shown) == 20 else moment
            )


OBJECT: Final[Any] = {
    "metadata": {"name": "a", "labels": {"x.y/z": "1"}, "finalizers": []},
    "spec": {"a": [1, 2.5, None, True], "b": [{"t": "R", "n": 1}, {"t": "Q"}], "c": {"d": {"e": "f"}}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X"}]},
}


def json_paths(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        path = jsonpath.compile(text)
    except jsonpath.PathError:
        return
    names = jsonpath.member_names(text)
    with suppress(jsonpath.PathError):
        found = path.find(OBJECT)
        for value in found:
            jsonpath.printed(value).encode()
        if names is not None:
            assert len(found) <= 1


def assignment_paths(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(jsonpath_edit.PathError):
        path = jsonpath_edit.parse(text)
        before = orjson.dumps(OBJECT)
        first = path.assigned(OBJECT, "new", jsonpath_edit.Allowance())
        assert orjson.dumps(OBJECT) == before
        again = path.assigned(first.document, "new", jsonpath_edit.Allowance())
        if not first.places:
            assert first.document == OBJECT
        orjson.dumps(again.document)


# --- CEL ------------------------------------------------------------------------------------------


def cel_expressions(data: bytes) -> None:
    """The generated function of a valid expression has the value, the cost and the errors of its oracle."""
    text = data.decode("utf-8", "replace")
    try:
        tree = CEL.compile(text).tree
    except CompileError as refused:
        assert refused.issues
        return
    adapters = Adapters()
    expected = outcome(ClosureProgram(tree, VARIABLES, adapters))
    found = outcome(Program(tree, VARIABLES, adapters))
    assert found == expected


def outcome(program: Any) -> tuple[str, int, int]:
    run = program.start(SOME_DATA, 20_000)
    try:
        value = repr(program.evaluate(run))
    except OverBudget:
        value = "over budget"
    except EvaluationError as error:
        value = f"error: {error}"
    return value, run.spent, run.worked


def cel_values(data: bytes) -> None:
    """The texts that functions of CEL read."""
    text = data.decode("utf-8", "replace")
    for read in TEXT_FUNCTIONS:
        with suppress(EvaluationError):
            read(text)
    with suppress(EvaluationError):
        span = moments_of_cel.duration_of(text)
        assert moments_of_cel.duration_of(f"{span.nanos // 1000}us").nanos == span.nanos - span.nanos % 1000
    with suppress(EvaluationError):
        stamp = moments_of_cel.timestamp_of(text)
        assert moments_of_cel.timestamp_of(moments_of_cel.written_timestamp(stamp)) == stamp
    with suppress(EvaluationError):
        url = urls.to_url(text)
        for part in (url.scheme, url.host, url.path, url.query, url.hostname, url.port, str(url.values())):
            part.encode("utf-8", "surrogatepass")
    with suppress(EvaluationError):
        cidr = addresses.parse_cidr(text)
        assert addresses.parse_cidr(str(cidr.masked())) == cidr.masked()


CEL: Final = ExpressionEnvironment(VARIABLES, KUBERNETES, homogeneous=False)
TEXT_FUNCTIONS: Final = (
    *(semvers.to_semver, semvers.normalized, addresses.parse_ip, addresses.parse_cidr, addresses.is_canonical),
    *(moments_of_cel.date_of, moments_of_cel.zone_of, conversions.string_to_int, conversions.string_to_uint),
    *(conversions.string_to_double, conversions.string_to_bool, urls.to_url),
)


def cel_formats(data: bytes) -> None:
    """`format`, with any pattern and arguments."""
    choices = Choices(data)
    arguments = [choices.pick(FORMATTED) for _ in range(choices.below(4))]
    with suppress(EvaluationError, OverBudget):
        string_format.format_text(Meter(), choices.rest().decode("utf-8", "replace"), arguments)


FORMATTED: Final[tuple[Any, ...]] = (1, -5, 2.5, math.nan, "x", b"\xff", True, None, [1, ["a"]], {"b": 1.5}, 2**63 - 1)


# --- patches --------------------------------------------------------------------------------------

POD: Final = definitions.schema("io.k8s.api.core.v1.Pod")
POD_CONFORMER: Final = compile_conformer(POD, wire.fields)
A_POD: Final = orjson.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x/y"], "ownerReferences": []},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]},
                {"name": "d", "image": "i", "resources": {"limits": {"cpu": "1"}}},
            ],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }
)
NAMES: Final = (
    *("metadata", "spec", "status", "name", "labels", "annotations", "finalizers", "ownerReferences", "uid"),
    *("containers", "initContainers", "image", "env", "value", "ports", "containerPort", "protocol", "resources"),
    *("limits", "cpu", "volumes", "emptyDir", "tolerations", "conditions", "type", "volumeMounts", "mountPath"),
    *("apiVersion", "kind", "managedFields", "$patch", "$retainKeys", "$setElementOrder/containers"),
    *("$setElementOrder/env", "$setElementOrder/ports", "$deleteFromPrimitiveList/finalizers", "a", "", "k:{}"),
)
TEXTS: Final = (
    *("c", "d", "A", "v", "p", "i", "1", "100m", "delete", "replace", "merge", "TCP", "x/y", "v1", "Pod", "Ready"),
    *("2024-05-01T12:00:00Z", "metadata", "name"),
)


def merge_patches(data: bytes) -> None:
    """The result is the definition's of RFC 7386, and applying the patch again changes nothing."""
    patch = Choices(data).json(NAMES, TEXTS)
    result = merge.apply(orjson.loads(A_POD), copied(patch))
    assert result == merged_plainly(orjson.loads(A_POD), patch)
    assert merge.apply(copied(result), copied(patch)) == result


def merged_plainly(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged_plainly(result.get(name), value)
    return result


def copied(value: Any) -> Any:
    return standard_json.loads(standard_json.dumps(value))


def strategic_patches(data: bytes) -> None:
    patch = Choices(data).json(NAMES, TEXTS)
    if isinstance(patch, dict):
        with refusals(400):
            orjson.dumps(strategic.apply(orjson.loads(A_POD), copied(patch), POD))


POINTERS: Final = (
    *("", "/", "/metadata", "/metadata/labels/a", "/metadata/labels/x~1y", "/spec/containers", "/spec/containers/0"),
    *("/spec/containers/-", "/spec/containers/-1", "/spec/containers/2", "/spec/containers/0/name", "/spec/volumes/00"),
    *("/status", "/a~", "metadata", "/spec/containers/0/env/0/value", "/spec/containers/9999999999"),
)


def json_patches(data: bytes) -> None:
    """Accepted patches have the result of the library `jsonpatch`, unless they use a deviation of Kubernetes."""
    choices = Choices(data)
    operations = [
        {
            "op": choices.pick(("add", "remove", "replace", "move", "copy", "test", "x")),
            "path": choices.pick(POINTERS),
            **({"from": choices.pick(POINTERS)} if choices.below(2) else {}),
            **({"value": choices.json(NAMES, TEXTS, 2)} if choices.below(3) else {}),
        }
        for _ in range(choices.below(5) + 1)
    ]
    with refusals(400, 413, 422):
        json_patch.check(operations)
        found = json_patch.apply(orjson.loads(A_POD), copied(operations))
        with suppress(JsonPatchException, JsonPointerException, TypeError, KeyError):
            assert found == JsonPatch(operations).apply(orjson.loads(A_POD))


APPLIED_BY: Final = ("kubectl", "controller", "x" * 128)


def applied_objects(data: bytes) -> None:
    """The result of an apply conforms, and applying the same again changes nothing."""
    choices = Choices(data)
    live: Any = orjson.loads(A_POD) if choices.below(3) else None
    for _ in range(3):
        sent = choices.json(NAMES, TEXTS)
        if not isinstance(sent, dict):
            return
        sent |= {"apiVersion": "v1", "kind": "Pod"}
        how: Any = {"manager": choices.pick(APPLIED_BY), "force": bool(choices.below(2)), "api_version": "v1"}
        with suppress(Malformed), refusals(400, 409):
            applied = POD_CONFORMER.conform(sent).obj
            found = apply.apply(live, copied(applied), POD, now="2024-05-01T12:00:00Z", **how)
            orjson.dumps(found)
            again = apply.apply(copied(found), copied(applied), POD, now="2025-05-01T12:00:00Z", **how)
            assert again == found
            live = found


def field_sets(data: bytes) -> None:
    """The sets of `managedFields`: a set that is written and read is the same, and the laws of sets hold."""
    choices = Choices(data)
    with refusals(400):
        first, second = (sets.parse(choices.json(ELEMENTS, (), 6)) for _ in range(2))
        assert sets.parse(copied(first)) == first
        both = sets.union(first, second)
        assert set(sets.paths(both)) == set(sets.paths(first)) | set(sets.paths(second))
        assert set(sets.paths(sets.difference(first, second))) == set(sets.paths(first)) - set(sets.paths(second))
        common = set(sets.paths(first)) & set(sets.paths(second))
        assert set(sets.paths(sets.intersection(first, second))) == common


ELEMENTS: Final = (
    *("f:a", "f:b", "f:", ".", 'k:{"name":"a"}', 'k:{"a":1,"b":"x"}', 'k:{"b":"x","a":1}', "v:1", 'v:"x"', "v:1.0"),
    *("i:0", "i:-1", "i:x", "k:[]", "x:y", "f", "v:null", "v:true"),
)


def pods(data: bytes) -> None:
    """Any object is refused, or conforms: then it does so again, unchanged, and also through protobuf."""
    obj = Choices(data).json(NAMES, TEXTS, 7)
    if not isinstance(obj, dict):
        return
    with suppress(Malformed):
        found = POD_CONFORMER.conform(obj).obj
        assert POD_CONFORMER.conform(copied(found)).obj == found
        typed = {**found, "kind": "Pod", "apiVersion": "v1"}
        decoded = POD_CONFORMER.conform(reread(typed, KINDS[0])).obj  # an empty list is null there, as in Go
        assert POD_CONFORMER.conform(reread(decoded, KINDS[0])).obj == decoded


# --- definitions ----------------------------------------------------------------------------------

SCHEMA_NAMES: Final = (
    *("type", "properties", "items", "additionalProperties", "required", "enum", "default", "format", "pattern"),
    *("minimum", "maximum", "maxLength", "minLength", "maxItems", "minItems", "nullable", "anyOf", "allOf", "oneOf"),
    *("not", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations"),
    *("rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf", "a", "b", "spec", "metadata"),
    *("multipleOf", "uniqueItems", "exclusiveMinimum", "maxProperties", "$ref", "description"),
)
SCHEMA_TEXTS: Final = (
    *("object", "array", "string", "integer", "number", "boolean", "a", "b", "map", "set", "atomic", "granular"),
    *("date-time", "int-or-string", "duration", "^a", "self.a > 1", "self == oldSelf", "size(self) < 2", ".a", "true"),
    *("FieldValueInvalid", "'x'", "self.all(i, i > 0)", "int64", "byte"),
)


def custom_resource_definitions(data: bytes) -> None:
    """A definition is refused with errors, or objects of any content can be conformed and validated."""
    choices = Choices(data)
    schema = choices.json(SCHEMA_NAMES, SCHEMA_TEXTS, 8)
    if not isinstance(schema, dict):
        return
    version: Any = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}},
        "additionalPrinterColumns": [
            {"name": "A", "type": choices.pick(COLUMN_TYPES), "jsonPath": choices.pick(PATHS)}
        ],
    }
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]},
    }
    try:
        definition = DEFINITIONS.conform(definition).obj
    except Malformed:
        return
    crd.default(definition)
    crd.prepare_create(definition)
    errors = crd.validate_create(definition)
    for error in errors:
        orjson.dumps(error.cause())
    if errors:
        return
    whole = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    structural = compile_structural(whole, OBJECT_META)
    obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
    obj["spec"] = choices.json(("a", "b"), ("", "1", "2024-05-01T12:00:00Z"), 4)
    with suppress(Malformed):
        structural.conform(obj)
        for error in structural.validate(obj):
            orjson.dumps(error.cause())
        again = copied(obj)
        assert structural.conform(again) == []
        assert again == obj
    definition["status"]["acceptedNames"] = names
    [resource] = crd_kinds.resources_of(definition)
    row = resource.printer.cells(obj, NOW)
    orjson.dumps(row)
    assert len(row) == len(resource.printer.columns)


COLUMN_TYPES: Final = ("string", "integer", "number", "boolean", "date")
PATHS: Final = (".spec.a", ".spec[0]", ".spec.*", ".spec..a", ".spec[?(@.a>1)].b", ".spec['a']", ".spec[*].a", ".")
DEFINITIONS: Final = compile_conformer(definitions.schema(KINDS[-1]), wire.fields)
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


def schema_formats(data: bytes) -> None:
    """Every `format` of schemas."""
    text = data.decode("utf-8", "replace")
    for check in formats.CHECKS.values():
        assert check(text) in (True, False)


# --- credentials and files ------------------------------------------------------------------------


def tokens(data: bytes) -> None:
    """The claims of a token are those that were signed."""
    text = data.decode("latin-1")
    found = SIGNING.verify(text)
    assert found is None or found.payload == b'{"iss":"x"}'
    key_named_in(text)
    try:
        bearer_token(text)
    except ApiError as refused:
        assert refused.code == 401


SIGNING: Final = SigningKeys(ec.derive_private_key(7, ec.SECP256R1()))  #: signed the token of the corpus


def certificate_requests(data: bytes) -> None:
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(data) + b"-----END CERTIFICATE REQUEST-----\n"
    for text in (base64.b64encode(pem).decode(), data.decode("latin-1")):
        try:
            request = csr.parse_request(text)
        except csr.SigningRefused as refused:
            assert str(refused)
            continue
        csr.requests_administrator({"signerName": csr.CLIENT, "request": text})
        for check in csr.SIGNERS.values():
            with suppress(csr.SigningRefused):
                check(request, ["client auth", "digital signature"])


def kubeconfigs(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "config"
        file.write_bytes(data)
        with suppress(KubeconfigError):
            merged = kubeconfig.merge([file])
            for context in merged.contexts:
                with suppress(KubeconfigError):
                    kubeconfig.client_config(merged, context=context)


def audit_policies(data: bytes) -> None:
    try:
        policy = AuditPolicy.parse(data)
    except AuditPolicyError as refused:
        assert str(refused)
        return
    policy.decide(User("a", ("g",)), Attributes("get", "", "secrets", "", "ns", "n"))
    policy.decide(None, Attributes("get", path="/healthz"))


def field_paths(data: bytes) -> None:
    """The `fieldPath` of a rule."""
    text = data.decode("utf-8", "replace")
    schema = {"properties": {"a": {"properties": {"b": {}}}, "m": {"additionalProperties": {}}, "x.y": {}}}
    found = crd_rules.resolve_field_path(text, schema)
    assert found is None or isinstance(found, str)


# --- all of them ----------------------------------------------------------------------------------

CHECKS: Final[tuple[Check, ...]] = (
    *(http_requests, paths, queries, accept_headers, continue_tokens, label_selectors, field_selectors),
    *(json_bodies, yaml_bodies, yaml_files, protobuf_bodies, quantities, moments, json_paths, assignment_paths),
    *(cel_expressions, cel_values, cel_formats, merge_patches, strategic_patches, json_patches, applied_objects),
    *(field_sets, pods, custom_resource_definitions, schema_formats, tokens, certificate_requests, kubeconfigs),
    *(audit_policies, field_paths),
)
FUZZERS: Final = {one.name: one for one in map(ParserFuzz, CHECKS)}
