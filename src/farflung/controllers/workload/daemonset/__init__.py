"""The DaemonSet controller: one pod on each matching node.

It writes Pods, ControllerRevisions and the status of DaemonSets.  Node affinity names the node of each pod, and the pod
scheduler binds it.
"""
