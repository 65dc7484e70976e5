"""Farflung places Kubernetes workloads on many far-flung clusters from one small hub."""

__version__ = "0.1.0"
