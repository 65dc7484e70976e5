"""A client for any Kubernetes API: a hub, kcp, a cluster."""
