"""The ReplicaSet controller: keeps `spec.replicas` pods of one template.

It writes Pods and the status of ReplicaSets.
"""
