"""The scheduler of pods: each pod that has no node yet gets one that fits.

Writes bindings of pods, and says in the status of a pod why no node fits.  Pods with a higher priority come first, then
older ones.  Nodes must be ready and schedulable, with taints that are tolerated, labels that are asked for, free host
ports, and enough cpu, memory and room for pods.  Affinity between pods, spreading and preemption are not looked at.
"""
