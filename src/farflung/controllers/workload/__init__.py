"""Controllers of a small cluster: what Deployments, StatefulSets, DaemonSets and Jobs ask for becomes Pods on its node."""
