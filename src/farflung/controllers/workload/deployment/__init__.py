"""The Deployment controller: one ReplicaSet per template, and the rollout from one to the next.

It writes ReplicaSets, and the status and revision annotation of Deployments.
"""
