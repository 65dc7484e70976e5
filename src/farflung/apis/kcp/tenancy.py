"""tenancy.kcp.io: workspaces and their types."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    Described,
    checked,
    column,
    conditions,
    flag,
    label_selector,
    listing,
    mapping,
    record,
    text,
)
from farflung.apis.kcp.names import TENANCY_GROUP
from farflung.apis.kcp.references import INITIALIZER_PATTERN, WORKSPACE_NAME, named_export, workspace_type
from farflung.machinery.errors import Obj

PHASES: Final = ["Scheduling", "Initializing", "Ready"]

_CLUSTER = checked(
    text("The logical cluster that holds the workspace's objects. Set when the workspace is scheduled."),
    ("self == oldSelf", "cluster is immutable"),
)
_INITIALIZERS = listing(
    "What has yet to be done before the workspace is ready.",
    text("The name of an initializer.", pattern=INITIALIZER_PATTERN),
)


def _phase(description: str) -> Obj:
    return text(description, enum=PHASES, default="Scheduling")


WORKSPACE: Final = Described(
    TENANCY_GROUP,
    "workspaces",
    "Workspace",
    "A workspace below this one: an API of its own, with its own objects, at a URL of its own.",
    {
        "spec": checked(
            record(
                "What the workspace is.",
                {
                    "type": checked(
                        workspace_type(
                            "The type of the workspace. If it is not said, it is what the type of this workspace has "
                            "as the default for its children. Cannot be changed."
                        ),
                        ("self.name == oldSelf.name", "name is immutable"),
                        ("has(oldSelf.path) == has(self.path)", "path is immutable"),
                        (
                            "!has(oldSelf.path) || !has(self.path) || self.path == oldSelf.path",
                            "path is immutable",
                        ),
                    ),
                    "location": record(
                        "Where the workspace may live.",
                        {"selector": label_selector("Which shards are good; every shard if it is not said.")},
                    ),
                    "cluster": _CLUSTER,
                    "URL": text("Where the API of the workspace is served. Set when the workspace is scheduled."),
                },
                default={},
            ),
            ("!has(oldSelf.URL) || has(self.URL)", "URL cannot be unset"),
            ("!has(oldSelf.cluster) || has(self.cluster)", "cluster cannot be unset"),
        ),
        "status": record(
            "How far the workspace has come.",
            {
                "phase": _phase("Scheduling, then Initializing, then Ready."),
                "conditions": conditions("What was observed while the workspace was made or deleted."),
                "initializers": _INITIALIZERS,
            },
            default={},
        ),
    },
    required=("spec",),
    name=WORKSPACE_NAME,
    short_names=("ws",),
    columns=(
        column("Type", ".spec.type.name", "Type of the workspace"),
        column("Region", ".metadata.labels['region']", "The region this workspace is in"),
        column(
            "Phase",
            r".metadata.labels['tenancy\.kcp\.io/phase']",
            "The current phase (e.g. Scheduling, Initializing, Ready, Deleting)",
        ),
        column("URL", ".spec.URL", "URL to access the workspace"),
        AGE,
    ),
    snapshot="v230116-832a4a55d",
)


def _types(description: str) -> Obj:
    """Which types are allowed."""
    fields = {
        "none": flag("No type is allowed."),
        "types": listing(
            "The types that are allowed, and those that extend them.",
            workspace_type("A type."),
            minItems=1,
        ),
    }
    return record(description, fields)


WORKSPACE_TYPE: Final = Described(
    TENANCY_GROUP,
    "workspacetypes",
    "WorkspaceType",
    "What workspaces of a type have in common: what they begin with, and where they may be.",
    {
        "spec": record(
            "What the type is.",
            {
                "initializer": flag(
                    "Whether a controller has to initialize every new workspace of this type before it is ready."
                ),
                "extend": record(
                    "Types that this one is too.",
                    {
                        "with": listing(
                            "Types whose initializers, bindings and limits hold for this one as well. One that does "
                            "not exist, or that extends this one, keeps workspaces of this type from being made.",
                            workspace_type("A type."),
                        )
                    },
                ),
                "additionalWorkspaceLabels": mapping(
                    "Labels that every new workspace of this type gets.", text("The value.")
                ),
                "defaultChildWorkspaceType": workspace_type(
                    "The type of workspaces made in one of this type that do not say theirs.",
                    default={"name": "universal", "path": "root"},
                ),
                "limitAllowedChildren": {
                    **_types("Which types workspaces may have that are made in one of this type."),
                    "oneOf": [{"required": ["none"]}, {"required": ["types"]}],
                },
                "limitAllowedParents": _types("Which type the workspace must have that one of this type is made in."),
                "defaultAPIBindings": listing(
                    "The APIs that are bound in every new workspace of this type.", named_export("An export.")
                ),
            },
        ),
        "status": record(
            "What was observed of the type.",
            {
                "conditions": conditions("Whether the type can be used."),
                "virtualWorkspaces": listing(
                    "Where initializers find the workspaces of this type that wait for them.",
                    record("One address.", {"url": text("The address.", minLength=1)}, required=("url",)),
                ),
            },
        ),
    },
    name=WORKSPACE_NAME,
    snapshot="v230110-89146c99",
)

CLUSTER_WORKSPACE: Final = Described(
    TENANCY_GROUP,
    "clusterworkspaces",
    "ClusterWorkspace",
    "What workspaces were before there were Workspaces. Nothing is done with one.",
    {
        "spec": record(
            "What the workspace was asked to be.",
            {
                "readOnly": flag("Whether it may be changed."),
                "type": workspace_type("Its type."),
                "shard": record(
                    "Where it may live.",
                    {
                        "name": text("The shard it must be on."),
                        "selector": label_selector("Which shards are good."),
                    },
                ),
            },
        ),
        "status": record(
            "How far it has come.",
            {
                "phase": _phase("Scheduling, then Initializing, then Ready."),
                "conditions": conditions("What was observed."),
                "baseURL": text("Where it is served."),
                "cluster": _CLUSTER,
                "location": record(
                    "Where it lives.",
                    {"current": text("The shard it is on."), "target": text("The shard it moves to.", enum=[""])},
                ),
                "initializers": _INITIALIZERS,
            },
        ),
    },
    columns=(
        column("Phase", ".status.phase", "The current phase (e.g. Scheduling, Initializing, Ready)"),
        column("Type", ".spec.type.name", "Type of the workspace"),
        column("URL", ".status.baseURL", "URL to access the workspace"),
        AGE,
    ),
    snapshot="v221219-c92ed8152",
)
