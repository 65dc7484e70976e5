"""The only node of a small cluster: it runs the pods that are bound to it and says how they are."""
