"""DaemonSets: one pod on each node that takes it.

Writes pods, ControllerRevisions and the status of DaemonSets.  Which node a pod is for stands in its node affinity; the
scheduler of pods does the rest.
"""
