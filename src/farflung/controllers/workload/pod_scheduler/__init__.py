"""The pod scheduler: binds each pending pod to a node that fits.

It writes Bindings, and the PodScheduled condition of pods that no node fits.  Pods with a higher priority come first,
then older ones.  A node must be ready and schedulable, and fit by taints, node affinity, host ports and resources.
Inter-pod affinity, topology spread and preemption are ignored.
"""
