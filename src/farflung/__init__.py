"""Farflung places Kubernetes workloads on many far-flung clusters from one small hub."""
