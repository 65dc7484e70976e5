"""The Common Expression Language as Kubernetes has it: parsed, checked, estimated, and evaluated within a budget."""
