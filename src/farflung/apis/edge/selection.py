"""How objects are selected that go somewhere or come back.

A list of names that has `*` alone stands for all names.
"""

from __future__ import annotations

from typing import Final

from farflung.apis.fragments import flag, label_selector, listing, record, text, texts

_GROUP = text("The API group; empty for the core group.")
_RESOURCES = texts('The resources, as lower-case plurals; `["*"]` for all of the group, [] for none.', "A resource.")

NON_NAMESPACED: Final = record(
    "Objects of one API group that are in no namespace. They fit by their name or by their labels.",
    {
        "apiGroup": _GROUP,
        "resources": _RESOURCES,
        "resourceNames": texts('Their names; `["*"]` for all, [] for none.', "A name."),
        "labelSelectors": listing("Their labels; one of these selectors is enough.", label_selector("Labels.")),
    },
    required=("resources",),
)

DOWNSYNC: Final = record(
    "Objects that fit everything that is said here. What is not said fits every object.",
    {
        "apiGroup": text("The API group; empty for the core group. Every group if it is not said."),
        "resources": texts(
            'The resources, as lower-case plurals; `["*"]` or nothing for every resource.', "A resource."
        ),
        "namespaces": texts(
            'The namespaces; `["*"]` or nothing for every namespace and for objects that are in none.', "A namespace."
        ),
        "namespaceSelectors": listing(
            "The labels of the namespace; one of these selectors is enough. Objects that are in none are taken for "
            "objects in a namespace without labels.",
            label_selector("Labels."),
        ),
        "objectNames": texts('Their names; `["*"]` or nothing for every name.', "A name."),
        "labelSelectors": listing("Their labels; one of these selectors is enough.", label_selector("Labels.")),
        "createOnly": flag("Whether the copies are left alone once they are there."),
        "statusCollectors": texts("The StatusCollectors that are applied to them.", "The name of a StatusCollector."),
    },
)

UPSYNC: Final = record(
    "Objects of one API group.",
    {
        "apiGroup": _GROUP,
        "resources": _RESOURCES,
        "namespaces": texts(
            'Their namespaces; `["*"]` for all, [] for none. Means nothing to objects that are in none.', "A namespace."
        ),
        "names": texts('Their names; `["*"]` for all, [] for none.', "A name."),
    },
    required=("resources",),
)
