"""The functions that Kubernetes adds, and those of cel-go that the oracle has not or has otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from farflung.machinery.cel.adapt import Adapters
from farflung.machinery.cel.compiler import Program
from farflung.machinery.cel.environment import ExpressionEnvironment
from farflung.machinery.cel.errors import CompileError
from farflung.machinery.cel.language.values import EvaluationError
from farflung.machinery.cel.library import KUBERNETES

ENVIRONMENT = ExpressionEnvironment({}, KUBERNETES, homogeneous=False)


def value_of(text: str) -> Any:
    program = Program(ENVIRONMENT.compile(text).tree, {}, Adapters())
    return program.evaluate(program.start({}))


def error_of(text: str) -> str:
    with pytest.raises(EvaluationError) as raised:
        value_of(text)
    return str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        # lists
        "[1, 2, 2, 3].isSorted() && !['b', 'a'].isSorted() && [].isSorted()",
        "[1, 2, 3].sum() == 6 && [1.5, 2.5].sum() == 4.0 && [duration('1m'), duration('1s')].sum() == duration('61s')",
        "[3, 1, 2].min() == 1 && ['a', 'c', 'b'].max() == 'c'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1].slice(1, 1) == []",
        "[[1, 2], [], [3]].flatten() == [1, 2, 3]",
        "[1, [2, [3, [4]]]].flatten(2) == [1, 2, 3, [4]]",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b']",
        "[1, 2, 1, 1.0, 3].distinct() == [1, 2, 3] && ['a', 'b', 'a'].distinct() == ['a', 'b']",
        "[1, 2, 3].reverse() == [3, 2, 1] && lists.range(3) == [0, 1, 2]",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()",
        # loops with two variables
        "['a', 'b'].all(i, v, i < 2 && v < 'c')",
        "{'a': 1}.exists(k, v, k == 'a' && v == 1)",
        "[1, 2, 3].existsOne(i, v, i == v - 3 || v == 2)",
        "['a', 'b'].transformList(i, v, v + string(i)) == ['a0', 'b1']",
        "[1, 2, 3].transformList(i, v, v > 1, v * 2) == [4, 6]",
        "{'a': 1, 'b': 2}.transformMap(k, v, v + 1) == {'a': 2, 'b': 3}",
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, k) == {'b': 'b'}",
        "{'a': 'x', 'b': 'y'}.transformMapEntry(k, v, {v: k}) == {'x': 'a', 'y': 'b'}",
        # regular expressions
        "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('x') == ''",
        "'123 abc 456'.findAll('[0-9]+') == ['123', '456']",
        "'123 abc 456'.findAll('[0-9]+', 1) == ['123'] && '1'.findAll('1', 0) == []",
        "'aba'.findAll('b*') == ['', 'b', '']",
        # URLs
        "url('https://user@example.com:80/a b?k=1&k=2&l=%20#f').getScheme() == 'https'",
        "url('https://example.com:80/').getHost() == 'example.com:80'",
        "url('https://example.com:80/').getHostname() == 'example.com'",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80'",
        "url('https://h/a b').getEscapedPath() == '/a%20b' && url('https://h').getEscapedPath() == ''",
        "url('https://h/a%2Fb').getEscapedPath() == '/a%2Fb'",
        "url('https://h/?k=1&k=2&l=x+y').getQuery() == {'k': ['1', '2'], 'l': ['x y']}",
        "url('/path').getHost() == '' && url('/path').getScheme() == ''",
        "isURL('https://a.b/c') && isURL('/a') && !isURL('a') && !isURL('') && !isURL('http://a b') && !isURL('://x')",
        "url('/a') == url('/a') && url('/a') != url('/b')",
        # addresses
        "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6",
        "isIP('1.2.3.4') && !isIP('1.2.3.400')",
        "!isIP('01.2.3.4') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
        "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
        "ip('0.0.0.0').isUnspecified() && ip('::1').isLoopback() && ip('127.9.9.9').isLoopback()",
        "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
        "ip('ff02::1').isLinkLocalMulticast() && !ip('fd00::1').isLinkLocalMulticast()",
        "ip('169.254.169.254').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast()",
        "ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
        "!ip('ff00::1').isGlobalUnicast() && ip('2001:db8::abcd').isGlobalUnicast()",
        "string(ip('2001:DB8:0:0::1')) == '2001:db8::1' && ip('::1') == ip('0:0::1')",
        "isCIDR('192.168.0.1/16') && isCIDR('::1/128')",
        "!isCIDR('1.2.3.4/33') && !isCIDR('1.2.3.4') && !isCIDR('::1/0128')",
        "cidr('192.168.0.0/24').containsIP('192.168.0.1') && !cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))",
        "!cidr('0.0.0.0/0').containsIP('::1')",
        "cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24')",
        "!cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/7'))",
        "cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24')",
        "cidr('192.168.0.0/16').prefixLength() == 16 && string(cidr('192.168.0.1/24')) == '192.168.0.1/24'",
        # quantities
        "isQuantity('1.3Gi') && isQuantity('200K') == false && !isQuantity('Three')",
        "quantity('200M').compareTo(quantity('0.2G')) == 0 && quantity('50M').compareTo(quantity('50Mi')) == -1",
        "quantity('150Mi').isGreaterThan(quantity('100Mi')) && quantity('50M').isLessThan(quantity('100M'))",
        "quantity('50k').add(20) == quantity('50020') && quantity('50k').sub(quantity('20k')) == quantity('30k')",
        "quantity('50000000G').isInteger() && !quantity('50m').isInteger() && quantity('50k').asInteger() == 50000",
        "quantity('9999999999999999999999').isInteger() == false && quantity('0.5').asApproximateFloat() == 0.5",
        "sign(quantity('-3')) == -1 && quantity('1k') == quantity('1000')",
        # versions
        "isSemver('1.0.0') && !isSemver('v1.0')",
        "isSemver('v1.0', true) && !isSemver('01.1.1') && !isSemver('1.0.0-01')",
        "semver('1.2.3').compareTo(semver('1.2.3')) == 0",
        "semver('1.2.3-alpha.2').isLessThan(semver('1.2.3-alpha.10'))",
        "semver('1.0.0-alpha').isLessThan(semver('1.0.0')) && semver('1.0.0-1').isLessThan(semver('1.0.0-a'))",
        "semver('v01.01', true) == semver('1.1.0') && semver('4.5.6').minor() == 5 && semver('1.2.3+b').patch() == 3",
        # formats
        "!format.dns1123Label().validate('my-label').hasValue()",
        "format.dns1123Label().validate('my.label').hasValue()",
        "!format.dns1123LabelPrefix().validate('my-label-').hasValue()",
        "!format.qualifiedName().validate('example.com/a').hasValue() && format.labelValue().validate('!').hasValue()",
        "format.uri().validate('a').value() == ['parse \"a\": invalid URI for request']",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
        "format.byte().validate('?').value() == ['invalid base64'] && !format.byte().validate('aGVsbG8=').hasValue()",
        "format.date().validate('2021-02-30').hasValue() && !format.date().validate('2021-02-28').hasValue()",
        "!format.datetime().validate('2021-01-01T00:00:00Z').hasValue() && format.datetime().validate('x').hasValue()",
        "format.named('uuid').hasValue() && !format.named('nonsense').hasValue()",
        # sets
        "sets.contains([1, 2, 3], [2]) && !sets.contains([1], [2]) && sets.contains([1], [1.0, 1])",
        "sets.equivalent([1, 2, 2], [2, 1]) && sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [])",
        # texts
        "'%.3f'.format([1234.5]) == '1,234.500' && '%s'.format([1e7]) == '1e+07'",
        "'%s'.format([['a', 1, 1.5, {'b': null}, true]]) == '[\"a\", 1, 1.500000, {\"b\":null}, true]'",
        "'%s %s'.format([duration('90s'), timestamp('2020-01-01T00:00:00Z')]) == '90s 2020-01-01T00:00:00Z'",
        "'%X %x'.format(['hi', b'\\xff']) == '6869 ff' && '%b'.format([true]) == '1'",
        "'%e'.format([1052.032911275]) == '1.052033\\u202f\\u00d7\\u202f10\\u2070\\u00b3'",
        "'ab'.substring(0, 2) == 'ab' && 'ab'.substring(2, 2) == '' && 'ab'.substring(1) == 'b'",
        "''.split('') == [] && 'abc'.split('', 2) == ['a', 'bc']",
        "'abc'.indexOf('', 2) == 2 && 'abc'.indexOf('a', 7) == -1 && 'abc'.lastIndexOf('a', 5) == -1",
        "string(1000000.0) == '1e+06' && string(123456.5) == '123456.5' && string(0.00001) == '1e-05'",
        "string(timestamp('2020-01-01T00:00:00.120Z')) == '2020-01-01T00:00:00.12Z'",
        "string(duration('1500ms')) == '1.5s'",
        "int(duration('1s')) == 1000000000 && int(timestamp('1970-01-01T00:01:00Z')) == 60",
        "double('-Infinity') < 0.0 && bool('t') && !bool('False')",
        # optional values
        "optional.ofNonZeroValue('') == optional.none() && optional.ofNonZeroValue(1) == optional.of(1)",
        "optional.of(1).or(optional.of(1 / 0)).value() == 1 && optional.of(2).orValue(1 / 0) == 2",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(1)].unwrapOpt() == [1]",
        "{'a': {'b': 1}}.?a.b.orValue(0) == 1 && {'a': {}}.?a.?b == optional.none()",
        "optional.of([1, 2]).optFlatMap(l, l[?5]).hasValue() == false && optional.of([1])[0] == optional.of(1)",
        "has({'a': {'b': 1}}.?a.b)",
    ],
)
def test_it_is_true(text: str) -> None:
    assert value_of(text) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'a': 1}.b", "no such key: b"),
        ("{1: 2}[true ? 3 : 1]", "no such key: 3"),
        ("[1][5]", "index out of bounds: 5"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("int(1e30)", "integer overflow"),
        ("int('a')", "type conversion error from 'string' to 'int'"),
        ("duration('100000h' + '') + duration('2500000h' + '')", "duration overflow"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
        ("dyn(1) + 'a'", "no such overload"),
        ("dyn(1).startsWith('a')", "no such overload: startsWith(int, string)"),
        ("[].min()", "min called on empty list"),
        ("'a'.charAt(3)", "index out of range: 3"),
        ("'a'.substring(1, 0)", "invalid substring range. start: 1, end: 0"),
        ("'%s'.format([])", "index 0 out of range"),
        ("'%q'.format([1])", 'could not parse formatting clause: unrecognized formatting clause "q"'),
        (
            "'%d'.format([1.5])",
            "error during formatting: decimal clause can only be used on integers, was given double",
        ),
        ("optional.none().value()", "optional.none() dereference"),
        (
            "quantity('x')",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("url('a')", 'URL parse error during conversion from string: parse "a": invalid URI for request'),
        (
            "ip('1.2.3.400')",
            'IP Address "1.2.3.400" parse error during conversion from string: ParseAddr("1.2.3.400"): '
            "IPv4 field has value >255",
        ),
        ("ip('::ffff:1.2.3.4')", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
        (
            "cidr('1.2.3.4')",
            "network address parse error during conversion from string: "
            "network address parse error during conversion from string: netip.ParsePrefix(\"1.2.3.4\"): no '/'",
        ),
        ("semver('1.2')", "No Major.Minor.Patch elements found"),
        ("'a'.matches('[' + 'b')", "error parsing regexp: missing closing ]: `[b`"),
        ("'a'.find('(' + 'b')", "Illegal regex: error parsing regexp: missing closing ): `(b`"),
        ("timestamp('x' + '')", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("duration('1x' + '')", 'time: unknown unit "x" in duration "1x"'),
        ("timestamp(0).getHours('nowhere')", "unknown time zone nowhere"),
        (f"timestamp(0).getHours('{'a/' * 2000}b')", f"unknown time zone {'a/' * 50}"),
        ("{'a': 1}.transformMap(k, v, {k: v}).a.b", "no such key: b"),
        ("['a', 'b'].transformMapEntry(i, v, {'x': i})", "insert failed: key x already exists"),
        ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
        ("[[1]].flatten(-1)", "level must be non-negative"),
        ("lists.range(-1)", "lists.range: size must be non-negative, got -1"),
    ],
)
def test_an_error_says_what_cel_go_says(text: str, message: str) -> None:
    assert error_of(text) == message


@pytest.mark.parametrize(
    "text", ["'abc'.reverse()", "math.greatest(1, 2)", "base64.encode(b'a')", "'%s %d'.format(['a', 1])"]
)
def test_what_the_environment_of_kubernetes_does_not_have_does_not_compile(text: str) -> None:
    with pytest.raises(CompileError):
        ExpressionEnvironment({}, KUBERNETES).compile(text)
