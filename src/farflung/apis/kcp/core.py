"""core.kcp.io: LogicalClusters and Shards."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    CustomKind,
    array,
    boolean,
    column,
    conditions,
    mapping,
    object_,
    quantity,
    text,
)
from farflung.apis.kcp.names import CORE_GROUP
from farflung.apis.kcp.references import INITIALIZER_PATTERN
from farflung.machinery.errors import Obj


def _initializers(description: str) -> Obj:
    return array(description, text("The name of an initializer.", pattern=INITIALIZER_PATTERN))


LOGICAL_CLUSTER: Final = CustomKind(
    CORE_GROUP,
    "logicalclusters",
    "LogicalCluster",
    "The workspace, seen from inside. Every workspace has one, with the name `cluster`.",
    {
        "spec": object_(
            "The desired state of the workspace.",
            directlyDeletable=boolean(
                "Whether deleting this object deletes the workspace. Otherwise only its parent can delete it.",
                default=False,
            ),
            owner=object_(
                "The owner of the workspace, which is deleted with it.",
                apiVersion=text("Its group and version.", pattern="^([^/]+/)?[^/]+$"),
                resource=text("Its resource.", minLength=1),
                name=text("Its name.", minLength=1),
                namespace=text("Its namespace; empty: cluster-scoped."),
                cluster=text("Its logical cluster.", minLength=1),
                uid=text("Its uid."),
                requires=("apiVersion", "cluster", "name", "resource", "uid"),
            ),
            initializers=_initializers("The initializers of the workspace. Set by the system."),
            facets={"default": {}},
        ),
        "status": object_(
            "The observed state of the workspace.",
            URL=text("The URL of the workspace's API."),
            phase=text(
                "Scheduling, then Initializing, then Ready.",
                enum=["Scheduling", "Initializing", "Ready"],
                default="Scheduling",
            ),
            conditions=conditions("Conditions of the creation and deletion of the workspace."),
            initializers=_initializers(
                "The initializers that are not finished. The workspace is ready when the list is empty."
            ),
            facets={"default": {}},
        ),
    },
    name={"enum": ["cluster"]},
    columns=(
        column(
            "Phase",
            r".metadata.labels['tenancy\.kcp\.io/phase']",
            "The current phase (e.g. Scheduling, Initializing, Ready, Deleting)",
        ),
        column("URL", ".status.URL", "URL to access the logical cluster"),
        AGE,
    ),
)


def _url(description: str) -> Obj:
    return text(description, minLength=1, format="uri")


SHARD: Final = CustomKind(
    CORE_GROUP,
    "shards",
    "Shard",
    "A server with workspaces.",
    {
        "spec": object_(
            "The URLs of the server.",
            baseURL=_url("The URL for direct access."),
            externalURL=_url("The prefix of the URLs of its workspaces; by default the baseURL."),
            virtualWorkspaceURL=_url("The prefix of the URLs of its views; by default the baseURL."),
            requires=("baseURL",),
        ),
        "status": object_(
            "The observed state of the server.",
            capacity=mapping("The capacity of the server.", quantity("An amount.")),
            conditions=conditions("Conditions of the server."),
        ),
    },
    columns=(
        column("Region", ".metadata.labels['region']", "The region this workspace is in"),
        column("URL", ".spec.baseURL", "Type URL to directly connect to the shard"),
        column("External URL", ".spec.externalURL", "The URL exposed in logical clusters created on that shard"),
        AGE,
    ),
    snapshot="v221219-c92ed8152",
)
