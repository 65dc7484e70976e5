"""The edge scheduler resolves each EdgePlacement to SyncTargets, and writes them as SinglePlacementSlices.

A destination is a Location whose labels match one of the placement's selectors, with a SyncTarget of the same workspace
that the Location selects.
"""
