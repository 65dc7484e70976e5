"""A file of keys: what is in it, what is refused, and what an external command gets."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from key_commands import arguments_of, write_command

from farflung.lib.envelopes import id_of, new_key
from farflung.lib.key_file import KeyFile, KeyFileError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "encryption.key"


@pytest.fixture
def command(tmp_path: Path) -> Path:
    return write_command(tmp_path / "kms")


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


def refusal(file: KeyFile) -> str:
    with pytest.raises(KeyFileError) as refused:
        file.read()
    return str(refused.value)


def test_a_new_file_has_one_key_and_is_its_owners_alone(path: Path) -> None:
    file = KeyFile(path)
    assert file.identity() is None
    file.create()
    [key] = file.read()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key.id == id_of(key.key)
    file.create()
    assert file.read() == [key]


def test_keys_of_other_programs_are_accepted_and_the_first_is_the_first(path: Path) -> None:
    a, b = new_key(), new_key()
    path.write_text(f"# openssl rand -base64 32\n\n {encoded(a)}  \n{encoded(b)}\n")
    assert [one.key for one in KeyFile(path).read()] == [a, b]


def test_written_keys_are_read_in_their_order(path: Path) -> None:
    file = KeyFile(path)
    file.create()
    before = file.identity()
    keys = [file.new_key(), *file.read()]
    file.write(keys)
    assert file.read() == keys
    assert file.identity() != before


@pytest.mark.parametrize("line", ["c2hvcnQ=", "not base64!", encoded(bytes(33))])
def test_what_is_no_key_is_named_by_its_line_and_not_shown(path: Path, line: str) -> None:
    path.write_text(f"# comment\n{line}\n")
    said = refusal(KeyFile(path))
    assert said == f"line 2 of {path} is not a key: it must be 32 bytes in base64"


def test_files_that_cannot_be_used_are_named(path: Path) -> None:
    assert refusal(KeyFile(path)) == f"cannot read {path}: no such file or directory"
    path.write_text("# no key\n")
    assert refusal(KeyFile(path)) == f"{path} has no key: restore the file"
    path.write_bytes(b"\xff\xfe")
    assert refusal(KeyFile(path)) == f"{path} is not a file of keys: it is not text"
    with pytest.raises(KeyFileError, match=f"cannot write {path}/below: file exists"):
        KeyFile(path / "below").create()


def test_neither_key_nor_file_is_in_what_is_printed_of_a_key(path: Path) -> None:
    KeyFile(path).create()
    [key] = KeyFile(path).read()
    assert encoded(key.key) not in repr(key)


# --- an external command --------------------------------------------------------------------------


def test_a_command_wraps_the_keys_of_the_file(path: Path, command: Path) -> None:
    file = KeyFile(path, str(command))
    file.create()
    [key] = file.read()
    assert key.line.startswith("wrapped ")
    assert encoded(key.key) not in path.read_text()
    assert arguments_of(command) == ["wrap", "unwrap", "unwrap"]


def test_a_file_may_have_plain_and_wrapped_keys(path: Path, command: Path) -> None:
    KeyFile(path).create()
    [plain] = KeyFile(path).read()
    file = KeyFile(path, f"{command} --region 'far away'")
    file.write([file.new_key(), plain])
    assert [one.line.startswith("wrapped ") for one in file.read()] == [True, False]
    assert arguments_of(command)[0] == "--region far away wrap"


def test_a_wrapped_key_needs_the_command(path: Path, command: Path) -> None:
    KeyFile(path, str(command)).create()
    assert refusal(KeyFile(path)) == f"{path} has a wrapped key: --encryption-command is required"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 7", "ended with exit code 7 on unwrap"),
        ("exit 0", "did not print one line of text on unwrap"),
        ("cat; echo; echo more", "did not print one line of text on unwrap"),
    ],
)
def test_a_command_that_fails_is_named(path: Path, tmp_path: Path, script: str, problem: str) -> None:
    path.write_text("wrapped abc\n")
    command = write_command(tmp_path / "kms", f"#!/bin/sh\n{script}\n")
    assert refusal(KeyFile(path, str(command))) == f"the command of --encryption-command ({command}) {problem}"


def test_a_command_that_cannot_be_run_is_named(path: Path) -> None:
    path.write_text("wrapped abc\n")
    assert "(/no/such) cannot be run: No such file or directory" in refusal(KeyFile(path, "/no/such"))
    assert "cannot be run: No closing quotation" in refusal(KeyFile(path, "kms 'a"))


def test_a_command_that_unwraps_something_else_is_refused(path: Path, tmp_path: Path) -> None:
    """Before a value is encrypted with a key that is lost."""
    command = write_command(tmp_path / "kms", f"#!/bin/sh\necho {encoded(bytes(32))}\n")
    with pytest.raises(KeyFileError, match="does not unwrap the key that it wrapped"):
        KeyFile(path, str(command)).create()
    assert not path.exists()


def test_a_command_that_ignores_its_input_is_no_problem(path: Path, tmp_path: Path) -> None:
    command = write_command(tmp_path / "kms", f"#!/bin/sh\nexec <&-\necho {encoded(bytes(32))}\n")
    path.write_text("wrapped abc\n")
    assert [one.key for one in KeyFile(path, str(command)).read()] == [bytes(32)]
