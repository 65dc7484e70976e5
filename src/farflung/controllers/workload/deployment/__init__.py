"""Deployments: one ReplicaSet for each template there was, and a way from one to the next.

Writes ReplicaSets (creates, scales, annotates, deletes old ones, adopts, lets go) and the status and revision of
Deployments.
"""
