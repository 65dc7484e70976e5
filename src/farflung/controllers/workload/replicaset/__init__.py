"""ReplicaSets: as many pods as `spec.replicas` says, all made of one template.

Writes pods (creates, deletes, adopts, lets go) and the status of ReplicaSets.
"""
