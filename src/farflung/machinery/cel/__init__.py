"""The Common Expression Language of Kubernetes: parser, type checker, cost estimates, evaluation within a budget."""
