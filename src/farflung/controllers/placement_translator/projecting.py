"""What of an object goes into a mailbox, and what is to be written if something is there.

A copy has the label `edge.kcp.io/projected: "yes"` and an annotation that says what we put into it: a hash of its
content, and the keys of its labels and annotations.  So what has gone at the source is taken out of the copy, even by
a translator that was not there when it was put in; and what somebody else added to the labels and annotations stays.

Nothing here changes what it is given; results share with it whatever is the same.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson

from farflung.controllers.placement_translator.assigned import with_assigned, without_assigned
from farflung.machinery.errors import Obj

PROJECTED: Final = "edge.kcp.io/projected"  #: the label of what is ours
YES: Final = "yes"
PROJECTION: Final = "edge.kcp.io/projection"  #: the annotation that says what we put in
OVERWRITE: Final = "edge.kcp.io/downsync-overwrite"  #: the annotation of what is left alone once it is there
NEVER: Final = "false"
LATER_OVERWRITE: Final = "edge.kubestellar.io/downsync-overwrite"  #: how a source may say the same
COUNT: Final = "kubestellar.io/executing-count"  #: the label that says how many clusters have a copy
RETURNED: Final = "edge.kcp.io/status-returned-from"  #: the annotation that says whose status an object has
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
HEAD: Final = frozenset({"apiVersion", "kind", "metadata", "status"})  #: every other section is content
DIGITS: Final = 16  #: of a hash
GLANCES: Final = 8  #: levels on which whole values are compared; below, that would be to look at the same too often
SYSTEM: Final = "kcp.io"
EDGE: Final = "edge.kcp.io"
#: kinds of which a server stores what it is given and nothing else; a Secret's content is not even hashed
LITERAL: Final = frozenset({("v1", "ConfigMap"), ("v1", "Secret")})


class Projection(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was put into a copy."""

    annotations: tuple[str, ...] = ()  #: their keys, sorted
    hash: str = ""  #: of the content; empty if that is compared as it is
    labels: tuple[str, ...] = ()  #: their keys, sorted
    sources: tuple[str, ...] = ()  #: the clusters that it is from, sorted


_NOTHING: Final = Projection()
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder(Projection).decode


# --- what goes there ------------------------------------------------------------------------------


def stripped(obj: Mapping[str, Any]) -> Obj:
    """What of a source object goes into mailboxes: nothing that its server, kcp or kubectl wrote into it.

    To know what of a Service was asked for, it needs the `managedFields`.
    """
    bare = without_assigned(obj)
    bare.pop("status", None)
    metadata = bare["metadata"]
    kept: Obj = {"name": metadata["name"]}
    if namespace := metadata.get("namespace"):
        kept["namespace"] = namespace
    for field in ("labels", "annotations"):
        if entries := {key: value for key, value in (metadata.get(field) or {}).items() if _travels(key)}:
            kept[field] = entries
    bare["metadata"] = kept
    return bare


def _travels(key: str) -> bool:
    """Whether a label or an annotation is of the user, not of the system or ours."""
    prefix, slash, _ = key.partition("/")
    if slash and prefix != EDGE and (prefix == SYSTEM or prefix.endswith(f".{SYSTEM}")):
        return False
    return key not in (PROJECTED, PROJECTION, COUNT, RETURNED, LAST_APPLIED)


def projected(obj: Mapping[str, Any], *, create_only: bool = False, sources: Iterable[str] = ()) -> Obj:
    """A stripped object, merged and customized, as it is to be in a mailbox.  `sources`: the clusters it is from.

    `create_only`: left alone once it is there, which a source can also wish by itself.
    """
    content = _content(obj)
    metadata = obj["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    projection = Projection(
        annotations=tuple(sorted(annotations)),
        hash="" if _is_literal(obj) else _hash(content),
        labels=tuple(sorted(labels)),
        sources=tuple(sorted(sources)),
    )
    ours = {PROJECTION: _encode(projection).decode()}
    if create_only or annotations.get(LATER_OVERWRITE) == NEVER:
        ours[OVERWRITE] = NEVER
    marked = {
        **metadata,
        "labels": dict(sorted({**labels, PROJECTED: YES}.items())),
        "annotations": dict(sorted({**annotations, **ours}.items())),
    }
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": marked, **content}


def _content(obj: Mapping[str, Any]) -> Obj:
    content = {name: section for name, section in obj.items() if name not in HEAD}
    if "stringData" in content and obj["kind"] == "Secret" and obj["apiVersion"] == "v1":
        texts = content.pop("stringData") or {}
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        content["data"] = {**(content.get("data") or {}), **encoded}
    return content


def _is_literal(obj: Mapping[str, Any]) -> bool:
    return (obj["apiVersion"], obj["kind"]) in LITERAL


def _hash(content: Obj) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:DIGITS]


# --- what is there --------------------------------------------------------------------------------


def is_ours(observed: Mapping[str, Any]) -> bool:
    """Whether we put it there: nothing else may be changed or deleted."""
    return bool((observed["metadata"].get("labels") or {}).get(PROJECTED) == YES)


def projection_of(observed: Mapping[str, Any]) -> Projection:
    """What we put into a copy, as it says; nothing, if it does not or what it says makes no sense."""
    try:
        return _decode((observed["metadata"].get("annotations") or {}).get(PROJECTION, "{}"))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _NOTHING


# --- from the one to the other --------------------------------------------------------------------


def updated(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> Obj | None:
    """What is to be put in the place of a copy, which has to be ours; None if it is as `projected` wants it.

    Labels and annotations of others stay, as do finalizers, the status and what the server assigned.  What the server
    added to our content by default is no difference.  Of a copy that is left alone once it is there, only that mark is
    written.
    """
    annotations: Obj = wanted["metadata"]["annotations"]
    if annotations.get(OVERWRITE) == NEVER:
        return _left_alone(observed)
    aim = with_assigned(wanted, observed)
    if _is_marked(observed["metadata"], wanted["metadata"]) and _holds(observed, aim):
        return None
    before = projection_of(observed)
    metadata = _metadata(observed)
    metadata["labels"] = _merged(metadata.get("labels"), {*before.labels}, wanted["metadata"]["labels"])
    metadata["annotations"] = _merged(metadata.get("annotations"), {*before.annotations, OVERWRITE}, annotations)
    result = {**aim, "metadata": metadata}
    if "status" in observed:
        result["status"] = observed["status"]
    return result


def _left_alone(observed: Mapping[str, Any]) -> Obj | None:
    annotations = observed["metadata"].get("annotations") or {}
    if annotations.get(OVERWRITE) == NEVER:
        return None
    metadata = _metadata(observed)
    metadata["annotations"] = {**annotations, OVERWRITE: NEVER}
    return {**observed, "metadata": metadata}


def released(observed: Mapping[str, Any]) -> Obj:
    """A copy that is made for nobody any more, and goes when it can."""
    metadata = _metadata(observed)
    projection = _encode(msgspec.structs.replace(projection_of(observed), sources=())).decode()
    metadata["annotations"] = {**(metadata.get("annotations") or {}), PROJECTION: projection}
    return {**observed, "metadata": metadata}


def _metadata(observed: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in observed["metadata"].items() if name != "managedFields"}


def _merged(there: Obj | None, before: set[str], wanted: Obj) -> Obj:
    left = {key: value for key, value in (there or {}).items() if key not in before}
    return dict(sorted({**left, **wanted}.items()))


def _is_marked(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether it has our labels and annotations.  One of them says which are ours, so none is there too many."""
    labels: Obj = there.get("labels") or {}
    annotations: Obj = there.get("annotations") or {}
    if OVERWRITE in annotations and OVERWRITE not in wanted["annotations"]:
        return False
    ours: tuple[Obj, Obj] = wanted["labels"], wanted["annotations"]
    return ours[0].items() <= labels.items() and ours[1].items() <= annotations.items()


def _holds(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether it has the content that is wanted, provided that it was once written so."""
    if _is_literal(wanted):
        return all(
            _same(observed.get(name), wanted.get(name))
            for name in observed.keys() | wanted.keys()
            if name not in HEAD and (name != "type" or name in wanted)
        )
    return all(_covers(observed.get(name), section) for name, section in wanted.items() if name not in HEAD)


def _same(there: Any, wanted: Any) -> bool:
    """What is not said is empty."""
    return bool(there == wanted) or (wanted in (None, {}, []) and there is None) or (wanted is None and there == {})


def _covers(there: Any, wanted: Any) -> bool:
    """Whether a value is there, with nothing but more fields in its maps."""
    level, glances = [(there, wanted)], GLANCES
    while level:
        below: list[tuple[Any, Any]] = []
        for there, wanted in level:
            if glances > 0 and there == wanted:
                continue
            if there is None and wanted in (None, {}, []):
                continue  # a server drops what is empty
            if type(wanted) is dict and type(there) is dict:
                below += [(there.get(key), value) for key, value in wanted.items() if value is not None]
            elif type(wanted) is list and type(there) is list and len(there) == len(wanted):
                below += zip(there, wanted, strict=True)
            elif type(wanted) in (dict, list) or there != wanted:
                return False
        level, glances = below, glances - 1
    return True
