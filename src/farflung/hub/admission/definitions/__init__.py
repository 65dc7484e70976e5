"""CustomResourceDefinitions: their defaults, what is refused in them, their names and their conditions."""
