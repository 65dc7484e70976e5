"""tenancy.kcp.io: workspaces and their types."""

from __future__ import annotations

from typing import Final

from farflung.apis.custom_kinds import (
    AGE,
    CustomKind,
    array,
    boolean,
    checked,
    column,
    conditions,
    label_selector,
    mapping,
    object_,
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
_INITIALIZERS = array(
    "The initializers that are not finished. The workspace is ready when the list is empty.",
    text("The name of an initializer.", pattern=INITIALIZER_PATTERN),
)


def _phase(description: str) -> Obj:
    return text(description, enum=PHASES, default="Scheduling")


WORKSPACE: Final = CustomKind(
    TENANCY_GROUP,
    "workspaces",
    "Workspace",
    "A workspace below this one: an isolated API with its own objects and URL.",
    {
        "spec": checked(
            object_(
                "The desired state of the workspace.",
                type=checked(
                    workspace_type(
                        "The type of the workspace; by default the default child type of this workspace's type. "
                        "Immutable."
                    ),
                    ("self.name == oldSelf.name", "name is immutable"),
                    ("has(oldSelf.path) == has(self.path)", "path is immutable"),
                    (
                        "!has(oldSelf.path) || !has(self.path) || self.path == oldSelf.path",
                        "path is immutable",
                    ),
                ),
                location=object_(
                    "The shards for the workspace.", selector=label_selector("Selects shards; empty: all.")
                ),
                cluster=_CLUSTER,
                URL=text("The URL of the workspace's API. Set when the workspace is scheduled."),
                facets={"default": {}},
            ),
            ("!has(oldSelf.URL) || has(self.URL)", "URL cannot be unset"),
            ("!has(oldSelf.cluster) || has(self.cluster)", "cluster cannot be unset"),
        ),
        "status": object_(
            "The observed state of the workspace.",
            phase=_phase("Scheduling, then Initializing, then Ready."),
            conditions=conditions("Conditions of the creation and deletion of the workspace."),
            initializers=_INITIALIZERS,
            facets={"default": {}},
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
    """A list of allowed types."""
    fields = {
        "none": boolean("No type is allowed."),
        "types": array(
            "The types that are allowed, and those that extend them.",
            workspace_type("A type."),
            minItems=1,
        ),
    }
    return object_(description, **fields)


WORKSPACE_TYPE: Final = CustomKind(
    TENANCY_GROUP,
    "workspacetypes",
    "WorkspaceType",
    "The initializers, bindings and limits of the workspaces of a type.",
    {
        "spec": object_(
            "The definition of the type.",
            initializer=boolean(
                "Whether a controller has to initialize every new workspace of this type before it is ready."
            ),
            extend=object_(
                "The types that this one extends.",
                **{
                    "with": array(
                        "Types whose initializers, bindings and limits apply to this one, too. If one does not "
                        "exist, or extends this one, no workspaces of this type can be created.",
                        workspace_type("A type."),
                    )
                },
            ),
            additionalWorkspaceLabels=mapping("Labels of every new workspace of this type.", text("The value.")),
            defaultChildWorkspaceType=workspace_type(
                "The default type of workspaces that are created in a workspace of this type.",
                default={"name": "universal", "path": "root"},
            ),
            limitAllowedChildren={
                **_types("The allowed types of workspaces that are created in a workspace of this type."),
                "oneOf": [{"required": ["none"]}, {"required": ["types"]}],
            },
            limitAllowedParents=_types("The allowed types of the parent workspace."),
            defaultAPIBindings=array(
                "The exports that every new workspace of this type binds.", named_export("An export.")
            ),
        ),
        "status": object_(
            "The observed state of the type.",
            conditions=conditions("Conditions of the type."),
            virtualWorkspaces=array(
                "The URLs of the views with the workspaces that are being initialized.",
                object_("An endpoint.", url=text("The URL.", minLength=1), requires=("url",)),
            ),
        ),
    },
    name=WORKSPACE_NAME,
    snapshot="v230110-89146c99",
)

CLUSTER_WORKSPACE: Final = CustomKind(
    TENANCY_GROUP,
    "clusterworkspaces",
    "ClusterWorkspace",
    "The predecessor of Workspace. The system ignores it.",
    {
        "spec": object_(
            "The desired state of the workspace.",
            readOnly=boolean("Whether it is read-only."),
            type=workspace_type("Its type."),
            shard=object_(
                "The shards for the workspace.",
                name=text("The required shard."),
                selector=label_selector("Selects shards."),
            ),
        ),
        "status": object_(
            "The observed state.",
            phase=_phase("Scheduling, then Initializing, then Ready."),
            conditions=conditions("The observed conditions."),
            baseURL=text("Its URL."),
            cluster=_CLUSTER,
            location=object_(
                "Its shards.", current=text("The current shard."), target=text("The future shard.", enum=[""])
            ),
            initializers=_INITIALIZERS,
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
