"""The resource that defines resources."""

from __future__ import annotations

from typing import Final

from farflung.apis.group import Group, status

EXTENSIONS: Final = Group("apiextensions.k8s.io", "v1", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.")

RESOURCES: Final = (
    EXTENSIONS.stored(
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=(status("CustomResourceDefinition"),),
        stored_as=("apiextensions.k8s.io", "v1beta1"),
    ),
)
