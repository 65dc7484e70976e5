"""core.kcp.io: LogicalClusters and Shards."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    column,
    conditions,
    flag,
    listing,
    mapping,
    quantity,
    record,
    text,
)
from farflung.apis.kcp.names import CORE_GROUP
from farflung.apis.kcp.references import INITIALIZER_PATTERN
from farflung.machinery.errors import Obj


def _initializers(description: str) -> Obj:
    return listing(description, text("The name of an initializer.", pattern=INITIALIZER_PATTERN))


LOGICAL_CLUSTER: Final = Described(
    CORE_GROUP,
    "logicalclusters",
    "LogicalCluster",
    "The workspace as it is seen from inside. There is one in every workspace, called `cluster`.",
    {
        "spec": record(
            "What the workspace is.",
            {
                "directlyDeletable": flag(
                    "Whether deleting this object deletes the workspace, which otherwise only its parent can.",
                    default=False,
                ),
                "owner": record(
                    "The object that decides how long the workspace lives; it is deleted with it.",
                    {
                        "apiVersion": text("Its group and version.", pattern="^([^/]+/)?[^/]+$"),
                        "resource": text("Its resource.", minLength=1),
                        "name": text("Its name.", minLength=1),
                        "namespace": text("Its namespace, if it is in one."),
                        "cluster": text("The logical cluster it is in.", minLength=1),
                        "uid": text("Its uid."),
                    },
                    required=("apiVersion", "cluster", "name", "resource", "uid"),
                ),
                "initializers": _initializers("What has to be done before the workspace is ready. Set by the system."),
            },
            default={},
        ),
        "status": record(
            "How far the workspace has come.",
            {
                "URL": text("Where the API of the workspace is served."),
                "phase": text(
                    "Scheduling, then Initializing, then Ready.",
                    enum=["Scheduling", "Initializing", "Ready"],
                    default="Scheduling",
                ),
                "conditions": conditions("What was observed while the workspace was made or deleted."),
                "initializers": _initializers("What has yet to be done before the workspace is ready."),
            },
            default={},
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


SHARD: Final = Described(
    CORE_GROUP,
    "shards",
    "Shard",
    "A server that holds workspaces.",
    {
        "spec": record(
            "Where the server is.",
            {
                "baseURL": _url("Where it is reached directly."),
                "externalURL": _url("What the URLs of its workspaces begin with; the baseURL if it is not said."),
                "virtualWorkspaceURL": _url("What the URLs of its exports begin with; the baseURL if it is not said."),
            },
            required=("baseURL",),
        ),
        "status": record(
            "What was observed of the server.",
            {
                "capacity": mapping("How much it can hold.", quantity("An amount.")),
                "conditions": conditions("Whether it can be used."),
            },
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
