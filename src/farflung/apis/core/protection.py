"""Finalizers that keep claims and volumes from being taken from those who use them."""

from __future__ import annotations

from typing import Final

from farflung.machinery.errors import Obj

CLAIM: Final = "kubernetes.io/pvc-protection"
VOLUME: Final = "kubernetes.io/pv-protection"


def protect(obj: Obj, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]
