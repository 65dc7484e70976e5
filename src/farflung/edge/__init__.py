"""A small cluster in one process: a hub without workspaces, the controllers of workloads, and a node that runs pods."""
