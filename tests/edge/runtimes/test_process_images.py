"""Which images are known."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.edge.runtimes.images import InvalidReference, Standing, is_own_command, repository, standing


@pytest.mark.parametrize(
    "image, kind",
    [
        ("httpd", Standing.HTTPD),
        ("httpd:2.4", Standing.HTTPD),
        ("library/httpd:2.4", Standing.HTTPD),
        ("docker.io/library/httpd", Standing.HTTPD),
        ("localhost:5000/httpd@sha256:" + "0" * 64, Standing.HTTPD),
        ("localhost/library/nginx", Standing.NGINX),
        ("public.ecr.aws/docker/library/nginx:1", Standing.NGINX),
        ("registry.k8s.io/pause:3.9", Standing.PAUSE),
        ("busybox", Standing.SHELL),
        ("shell", Standing.UNKNOWN),
        ("unknown", Standing.UNKNOWN),
        ("bitnami/nginx", Standing.UNKNOWN),
        ("evil/httpd", Standing.UNKNOWN),
        ("postgres", Standing.UNKNOWN),
    ],
)
def test_an_image_is_known_by_its_name_alone(image: str, kind: Standing) -> None:
    assert standing(image) is kind


@pytest.mark.parametrize("image", ["", "HTTPD", "a b", "httpd:", "../httpd", "httpd@sha256:1", "-httpd", "a" * 10_000])
def test_what_is_no_reference_is_refused(image: str) -> None:
    with pytest.raises(InvalidReference):
        standing(image)


@given(st.text(alphabet="ab/.:-_@0", max_size=200))
def test_any_text_is_a_reference_or_refused_at_once(image: str) -> None:
    with contextlib.suppress(InvalidReference):
        repository(image)


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
def test_a_command_that_is_the_images_own_needs_no_permission(
    command: tuple[str, ...] | None, arguments: tuple[str, ...] | None, own: bool
) -> None:
    assert is_own_command(Standing.HTTPD, command, arguments) is own
