"""Names of images, as Kubernetes reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.edge.runtimes.base import ImageError
from farflung.edge.runtimes.image_names import qualified, repository

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
def test_an_image_is_of_docker_io_and_latest_unless_it_says_otherwise(image: str, expected: str) -> None:
    assert qualified(image) == expected


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
def test_what_is_no_name_of_an_image_is_refused(image: str) -> None:
    with pytest.raises(ImageError) as refused:
        qualified(image)
    assert refused.value.reason == "InvalidImageName"


@given(st.text(alphabet="aA0.:/@-_ é", max_size=20))
def test_a_qualified_name_is_what_it_is(image: str) -> None:
    try:
        name = qualified(image)
    except ImageError:
        return
    assert qualified(name) == name
    assert name.startswith(f"{repository(name)}:")
    assert "/" in repository(name)


def test_a_repository_has_neither_tag_nor_digest() -> None:
    assert repository("registry:5000/tiny:1") == "registry:5000/tiny"
    assert repository(f"docker.io/library/httpd@{DIGEST}") == "docker.io/library/httpd"
