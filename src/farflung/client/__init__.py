"""Talk to any Kubernetes API: ours, kcp's, a real cluster's."""
