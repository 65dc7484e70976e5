"""The small YAML reader and writer agree with PyYAML about everything they dare to touch."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from farflung.cli.plugins.yaml_text import Unfamiliar, dump, load, read_block_yaml

KUBECONFIG = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTi==
    server: https://127.0.0.1:17743/clusters/root:compute
  name: workspace.kcp.io/current
contexts:
- context:
    cluster: workspace.kcp.io/current
    extensions:
    - extension:
        last-update: Mon, 01 Jan 2024 10:00:00 UTC
        version: v1.30.1
      name: context_info
    user: kcp-admin
  name: workspace.kcp.io/current
current-context: workspace.kcp.io/current
kind: Config
preferences: {}
users:
- name: kcp-admin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      args:
      - --cluster-name
      - "1234"
      - 'it''s: me'
      command: aws
      env: null
      interactiveMode: IfAvailable
      provideClusterInfo: false
    token: 58f7e799-4653-422b-adba-b1e5e85a7fac
"""


class TextualLoader(yaml.SafeLoader):
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def oracle(text: str) -> Any:
    return yaml.load(text, TextualLoader)


texts = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="abz019:-_.+ #'\"{}[]~!&*?|>%@`,=<\\/eExXoO\nyn", max_size=12),
    st.sampled_from(["true", "no", "null", "~", "1e3", "0x1f", "0o7", "12:30:45", "2001-12-14", ".5", "=", "<<", "-"]),
    st.sampled_from(["https://[::1]:6443/clusters/root:a", "a: b", "a #b", "a:", "- a", "1_000", "+1", ".inf", "0b1"]),
    st.builds(lambda rest: f"2001-12-14 {rest}", st.text(max_size=4) | st.sampled_from(['"', "\\", "'", "\x07"])),
)
keys = st.one_of(st.from_regex(r"[a-z][a-zA-Z./-]{0,8}", fullmatch=True), texts)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
LINE_ENDS = [
    "",
    ":",
    ": x",
    ": {}",
    ": []",
    ": 'a'",
    ': "b\\n"',
    ": |",
    ": 1",
    ": y",
    ":x",
    ": # c",
    " y",
    ": - z",
    ": -z",
]
lines = st.builds(
    lambda indent, dash, key, rest: " " * indent + dash + key + rest,
    st.integers(0, 4),
    st.sampled_from(["", "", "- ", "- - "]),
    st.sampled_from(["", "a", "b", "c-d", "1", "true", '"q"']),
    st.sampled_from(LINE_ENDS),
)


def test_a_kubeconfig_as_kubectl_writes_it_is_read_without_pyyaml_and_written_as_it_was() -> None:
    assert read_block_yaml(KUBECONFIG) == oracle(KUBECONFIG)
    assert dump(read_block_yaml(KUBECONFIG)) == KUBECONFIG


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x\n",
        "a: |\n  one\n  two\n",
        "a: one\n  two\n",
        "a: {b: c}\n",
        "a: 1\na: 2\n",
        "a: b # comment\n",
        "a: \u00e4\n",
        "? a\n: b\n",
        "a: 2001-12-14\n",
    ],
)
def test_what_the_small_reader_does_not_know_is_left_to_pyyaml(text: str) -> None:
    with pytest.raises(Unfamiliar):
        read_block_yaml(text)
    assert load(text) == oracle(text)


def test_json_is_read_as_well() -> None:
    assert load('{"kind": "Config", "users": [{"name": "\\u00e4"}]}') == {"kind": "Config", "users": [{"name": "ä"}]}


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\x00", "a: '", "{" * 3_000, "- " * 1_000 + "a"])
def test_what_is_no_yaml_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        load(text)


@given(values)
def test_what_pyyaml_writes_is_read_alike(value: Any) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    try:
        read = read_block_yaml(text)
    except Unfamiliar:
        return
    assert read == oracle(text)


@given(st.lists(lines, max_size=8).map("\n".join))
def test_whatever_the_small_reader_accepts_pyyaml_reads_alike(text: str) -> None:
    try:
        read = read_block_yaml(text)
    except Unfamiliar:
        return
    assert read == oracle(text)


@given(texts)
def test_a_scalar_the_small_reader_accepts_pyyaml_reads_alike(scalar: str) -> None:
    text = f"a: {scalar}\nb:\n- {scalar}\n"
    try:
        read = read_block_yaml(text)
    except Unfamiliar:
        return
    assert read == oracle(text)


@given(values)
def test_what_is_written_reads_as_what_it_was(value: Any) -> None:
    text = dump(value)
    assert oracle(text) == value
    assert load(text) == value
