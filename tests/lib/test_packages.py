from __future__ import annotations

from importlib.metadata import version

import pytest

from farflung.lib.packages import WrongPackage, file_of

WANTED = ">=1.2,<2"


def test_a_file_of_a_package_is_found() -> None:
    assert file_of("pytest", WANTED, "pytest", "py.typed").is_file()


def test_a_package_without_the_file_is_named_with_its_version_and_the_one_to_install() -> None:
    with pytest.raises(WrongPackage) as caught:
        file_of("pytest", WANTED, "pytest", "no/such.json")
    assert str(caught.value) == (
        f"pytest {version('pytest')} is installed, which has no file pytest/no/such.json; pytest>=1.2,<2 is needed;"
        " run: pip install 'pytest>=1.2,<2'"
    )


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(WrongPackage) as caught:
        file_of("no-such-package", WANTED, "no_such_package", "file")
    assert str(caught.value) == (
        "no-such-package is not installed, and no-such-package>=1.2,<2 is needed;"
        " run: pip install 'no-such-package>=1.2,<2'"
    )
