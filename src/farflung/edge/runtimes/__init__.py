"""What runs containers: podman, or local processes that stand in for images that are known."""
