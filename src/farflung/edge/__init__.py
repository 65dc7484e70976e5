"""The embedded edge: a hub without workspaces, the workload controllers and a node, in one process."""
