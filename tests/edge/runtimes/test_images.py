"""Image names, and the images that the process runtime stands in for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.edge.runtimes.base import ImageError
from farflung.edge.runtimes.images import StandIn, find_stand_in, is_default_command, qualified_name, repository

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("httpd", "docker.io/library/httpd:latest"),
        ("httpd:2.4", "docker.io/library/httpd:2.4"),
        ("library/httpd:2.4", "docker.io/library/httpd:2.4"),
        ("docker.io/library/httpd:2.4", "docker.io/library/httpd:2.4"),
        ("someone/thing", "docker.io/someone/thing:latest"),
        ("quay.io/a/b/c:1", "quay.io/a/b/c:1"),
        ("localhost/tiny:1", "localhost/tiny:1"),
        ("registry:5000/tiny", "registry:5000/tiny:latest"),
        ("httpd:5000", "docker.io/library/httpd:5000"),
        (f"httpd@{DIGEST}", f"docker.io/library/httpd@{DIGEST}"),
        (f"quay.io/a/b:2@{DIGEST}", f"quay.io/a/b@{DIGEST}"),
        ("a__b/c-d.e", "docker.io/a__b/c-d.e:latest"),
    ],
)
def test_the_defaults_of_an_image_name_are_docker_io_and_latest(image: str, expected: str) -> None:
    assert qualified_name(image) == expected


@pytest.mark.parametrize(
    "image",
    [
        "",
        "UPPER",
        "-dash",
        "--privileged",
        "a/../b",
        "a//b",
        "/a",
        "a/",
        "a:",
        "a:b:c",
        "a b",
        "a\nb",
        "a@sha256:1",
        "http://a/b",
        "docker://a",
        "a___b",
        "ä",
        "a:ä",
        "x" * 300,
        "dir:/etc",
        "quay.io/",
    ],
)
def test_an_invalid_image_name_is_refused(image: str) -> None:
    with pytest.raises(ImageError) as refused:
        qualified_name(image)
    assert refused.value.reason == "InvalidImageName"


@given(st.text(alphabet="aA0.:/@-_ é", max_size=200))
def test_qualifying_a_qualified_name_does_not_change_it(image: str) -> None:
    try:
        name = qualified_name(image)
    except ImageError:
        return
    assert qualified_name(name) == name
    assert name.startswith((f"{repository(name)}:", f"{repository(name)}@"))
    assert "/" in repository(name)


def test_a_repository_has_neither_tag_nor_digest() -> None:
    assert repository("registry:5000/tiny:1") == "registry:5000/tiny"
    assert repository(f"docker.io/library/httpd@{DIGEST}") == "docker.io/library/httpd"


@pytest.mark.parametrize(
    "image, kind",
    [
        ("httpd", StandIn.HTTPD),
        ("httpd:2.4", StandIn.HTTPD),
        ("library/httpd:2.4", StandIn.HTTPD),
        ("docker.io/library/httpd", StandIn.HTTPD),
        ("localhost:5000/httpd@sha256:" + "0" * 64, StandIn.HTTPD),
        ("localhost/library/nginx", StandIn.NGINX),
        ("public.ecr.aws/docker/library/nginx:1", StandIn.NGINX),
        ("registry.k8s.io/pause:3.9", StandIn.PAUSE),
        ("busybox", StandIn.SHELL),
        ("shell", StandIn.UNKNOWN),
        ("unknown", StandIn.UNKNOWN),
        ("bitnami/nginx", StandIn.UNKNOWN),
        ("evil/httpd", StandIn.UNKNOWN),
        ("postgres", StandIn.UNKNOWN),
    ],
)
def test_the_name_of_an_image_decides_about_its_stand_in(image: str, kind: StandIn) -> None:
    assert find_stand_in(image) is kind


@pytest.mark.parametrize("image", ["", "HTTPD", "a b", "httpd:", "../httpd", "httpd@sha256:1", "-httpd", "a" * 10_000])
def test_an_invalid_image_name_has_no_stand_in(image: str) -> None:
    with pytest.raises(ImageError):
        find_stand_in(image)


@pytest.mark.parametrize(
    "command, arguments, own",
    [
        (None, None, True),
        (("httpd-foreground",), None, True),
        (("/usr/local/apache2/bin/httpd",), ("-D", "FOREGROUND"), True),
        (("sh",), None, False),
        (None, ("httpd",), False),
    ],
)
def test_the_default_command_of_an_image_is_recognized(
    command: tuple[str, ...] | None, arguments: tuple[str, ...] | None, own: bool
) -> None:
    assert is_default_command(StandIn.HTTPD, command, arguments) is own
