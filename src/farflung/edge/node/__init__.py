"""The only node of an embedded edge: registration, pods, containers, volumes, probes, status."""
