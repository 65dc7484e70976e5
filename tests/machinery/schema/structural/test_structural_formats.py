import pytest

from farflung.machinery.schema.structural import formats

GOOD = {
    "bsonobjectid": ["507f1f77bcf86cd799439011"],
    "byte": ["YQ==", "YWI=", "YWJj"],
    "cidr": ["10.0.0.0/8", "::/0", "010.0.0.1/32", "fe80::1/64"],
    "creditcard": ["4111 1111 1111 1111"],
    "date": ["2020-02-29", "0000-02-29"],
    "date-time": ["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5+01:00"],
    "duration": ["1h5m", "1.5s", "0", "-3ms", "22 ns", "3 days", "1 hour 2 minutes"],
    "email": ["a@b", "Ann Example <ann@example.com>", '"a b"@example.com', "a.b+c@[127.0.0.1]"],
    "hexcolor": ["#FFF", "a0b0c0"],
    "hostname": ["example.com", "x", "x-y", "99.example.com", "xn--bcher-kva.example.com", "ôlà.ôlà"],
    "ipv4": ["1.2.3.4", "001.2.3.4", "::ffff:1.2.3.4"],
    "ipv6": ["::1", "::ffff:1.2.3.4", "2001:db8::"],
    "isbn": ["0321751043", "978-0321751041"],
    "isbn10": ["0321751043"],
    "isbn13": ["978-0321751041"],
    "k8s-long-name": ["a.b-c"],
    "k8s-short-name": ["a-b"],
    "mac": ["01:02:03:04:ab:cd", "01-02-03-04-ab-cd", "0102.0304.abcd"],
    "password": ["", "anything"],
    "rgbcolor": ["rgb(0, 128, 255)"],
    "ssn": ["111-22-3333"],
    "uri": ["http://example.com/a?b", "/path", "mailto:a", "http://[::1]:80/", "*"],
    "uuid": ["7D444840-9DC0-11D1-B245-5FFDCE74FAD2", "7d4448409dc011d1b2455ffdce74fad2"],
    "uuid3": ["bcd02e22-68f0-3046-a512-327cca9def8f"],
    "uuid4": ["025b0d74-00a2-4048-bf57-227c5111bb34"],
    "uuid5": ["886313e1-3b8a-5372-9b90-0c9aee199e5d"],
}
BAD = {
    "bsonobjectid": ["xyz"],
    "byte": ["***", "", "YQ", "YQ=", "YQ==="],
    "cidr": ["1.2.3.4", "1.2.3.4/33", "::/129", "/8", "1.2.3.4/-1"],
    "creditcard": ["4111 1111 1111 1112", "x"],
    "date": ["2020-13-01", "2019-02-29", "2020-1-1", "٢٠٢٠-01-01"],
    "date-time": ["yesterday", "2020-01-01", "2020-01-01T24:00:00Z", "2020-01-01T00:00:00"],
    "duration": ["5 parsecs", "", "1", "h"],
    "email": ["x", "@b", "a@", "a b@c"],
    "hexcolor": ["#FFFF", "red"],
    "hostname": ["a_b!", "", "-a", "a-b-c", "example.c0m", "a..b", "x" * 64 + ".com"],
    "ipv4": ["1.2.3", "1.2.3.256", "::1", "1.2.3.4.5", "\u0661.2.3.4"],
    "ipv6": ["::zz", "1.2.3.4", "::1%eth0", "1::2::3"],
    "isbn": ["0321751044"],
    "isbn10": ["978-0321751041"],
    "isbn13": ["0321751043"],
    "k8s-long-name": ["A"],
    "k8s-short-name": ["a.b", "-a", "a" * 64],
    "mac": ["zz", "01:02:03:04:ab", "01:02-03:04:ab:cd"],
    "rgbcolor": ["rgb(256,0,0)", "rgb()"],
    "ssn": ["1"],
    "uri": ["x y", "", "example", "http://a b/", "/%zz", "http://a\n/"],
    "uuid": ["x", "7d444840-9dc0-11d1-b245-5ffdce74fad"],
    "uuid3": ["025b0d74-00a2-4048-bf57-227c5111bb34"],
    "uuid4": ["bcd02e22-68f0-3046-a512-327cca9def8f"],
    "uuid5": ["025b0d74-00a2-4048-bf57-227c5111bb34"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in GOOD.items() for text in texts])
def test_a_text_has_its_format(name: str, text: str) -> None:
    assert formats.check_of(formats.known(name))(text)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_a_text_does_not_have_the_format(name: str, text: str) -> None:
    assert not formats.check_of(formats.known(name))(text)


def test_every_format_is_tested() -> None:
    assert {name.replace("-", "") for name in GOOD} == set(formats.CHECKS)


@pytest.mark.parametrize("name", ["int32", "int64", "double", "foo", "", None, 5, ["date"]])
def test_other_formats_are_notes(name: object) -> None:
    assert formats.known(name) == ""


@pytest.mark.parametrize("name", sorted(formats.CHECKS))
@pytest.mark.parametrize(
    "text", ["1" * 50_000, "a." * 50_000, "1h" * 50_000, '"' + "a" * 50_000, "-" * 50_000, "::" * 50_000]
)
def test_a_long_text_is_read_once(name: str, text: str) -> None:
    assert formats.CHECKS[name](text) in (True, False)
