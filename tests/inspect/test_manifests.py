"""Objects from files, as kubectl finds them."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from farflung.inspect.manifests import manifests
from farflung.inspect.results import InspectError

A = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
B = A.replace("name: a", "name: b")


def names(*files: str | Path) -> list[tuple[str, str]]:
    return [(source, obj["metadata"]["name"]) for source, obj in manifests(map(str, files))]


def test_documents_of_several_files_come_in_their_order(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.json"
    one.write_text(f"# only words\n---\n{A}--- # more\n{B}---\n")
    two.write_text('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}')
    found = [(f"{one}, document 2", "a"), (f"{one}, document 3", "b"), (str(two), "c")]
    assert names(one, two) == found


def test_of_a_directory_those_files_count_that_kubectl_takes(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.txt"):
        (tmp_path / name).write_text(A)
    (tmp_path / "deeper").mkdir()
    assert [Path(source).name for source, _ in names(tmp_path)] == ["a.yaml", "b.yml"]
    with pytest.raises(InspectError, match=r"no .json, .yaml, .yml file in"):
        names(tmp_path / "deeper")


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(A.encode())))
    assert names("-") == [("standard input", "a")]


def test_lists_are_what_is_in_them(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    items = [f"- {text.strip()}".replace("\n", "\n  ") for text in (A, B)]
    file.write_text("apiVersion: v1\nkind: List\nitems:\n" + "\n".join(items))
    assert names(file) == [(f"{file}, items[0]", "a"), (f"{file}, items[1]", "b")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "yaml: line 1: did not find expected node content"),
        ("7", "not a Kubernetes object: apiVersion or kind is missing"),
        ("kind: 7\napiVersion: v1", "not a Kubernetes object"),
        ("kind: List\napiVersion: v1\nitems: [7]", "items.0.: not a Kubernetes object"),
        (f"{A}kind: Secret\n", 'key "kind" already set in map'),
    ],
)
def test_what_cannot_be_read_is_a_sentence_that_names_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(InspectError, match=f"{file}.*{sentence}"):
        names(file)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InspectError, match=r"cannot read .*missing.yaml: no such file or directory"):
        names(tmp_path / "missing.yaml")
