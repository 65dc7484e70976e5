"""What the workload controllers share: owner references, pods, revisions, nodes, write steps.  Pure."""
