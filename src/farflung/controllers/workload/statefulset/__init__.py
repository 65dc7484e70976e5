"""The StatefulSet controller: named pods that are created, deleted and updated in the order of their ordinals.

It writes Pods, PersistentVolumeClaims, ControllerRevisions and the status of StatefulSets.  It never deletes claims:
`persistentVolumeClaimRetentionPolicy` is ignored.
"""
