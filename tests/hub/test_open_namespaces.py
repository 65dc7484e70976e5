"""The deletionTimestamp of an object is found in its encoded form without parsing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farflung.apis.builtin.kinds import BUILTIN
from farflung.hub.catalog import objects
from farflung.machinery.errors import Obj
from farflung.store.base import Entry

NAMESPACE = next(resource for resource in BUILTIN if resource.kind == "Namespace")
TIME = "2024-05-01T12:00:00Z"
texts = st.one_of(
    st.text(),
    st.sampled_from(
        ['"creationTimestamp":"', f'"creationTimestamp":"{TIME}","deletionTimestamp"', '"deletionTimestamp":"']
    ),
)
metadata = st.fixed_dictionaries(
    {"name": texts, "creationTimestamp": st.just(TIME)},
    optional={
        "generateName": texts,
        "generation": st.integers(1, 3),
        "deletionTimestamp": st.just(TIME),
        "deletionGracePeriodSeconds": st.just(0),
        "labels": st.dictionaries(texts, texts),
        "annotations": st.dictionaries(texts, texts),
        "finalizers": st.lists(texts),
    },
)


@given(metadata)
def test_an_encoded_object_is_terminating_if_it_has_a_deletion_timestamp(described: Obj) -> None:
    expected = "deletionTimestamp" in described
    entry = Entry("", objects.encode(NAMESPACE, {"metadata": described}), 1)
    assert objects.is_terminating(entry) == expected
