"""StatefulSets: pods with names of their own, made, deleted and renewed in the order of their numbers.

Writes pods, claims (PersistentVolumeClaims, which are never deleted, whatever `persistentVolumeClaimRetentionPolicy`
says), ControllerRevisions and the status of StatefulSets.
"""
