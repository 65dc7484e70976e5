"""What kube-controller-manager and kube-scheduler do for workloads, for a cluster of one node.

    change ──► keys ──► look at one owner ──► decide (pure) ──steps──► workshop ──► API

One folder for each kind of owner: deployment, replicaset, statefulset, daemonset, job; and pod_scheduler.  A look
compares what there is with what should be, and does the next thing; what it wrote counts at once and leads to the next
look, until there is nothing left to do.
"""
