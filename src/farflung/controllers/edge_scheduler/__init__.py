"""The edge scheduler: which SyncTargets each EdgePlacement leads to.

It reads EdgePlacements, Locations and SyncTargets of all workspaces, and keeps for every EdgePlacement the
SinglePlacementSlices that say where it leads.  A destination is a Location whose labels fit one of the placement's
selectors, with a SyncTarget of the same workspace that the Location selects.

    values      what is known of the three kinds, as far as it matters here
    reading     values from objects of the API, with what is wrong with them
    engine      all values, indexed: what changes when one of them changes, and the destinations of a placement
    fitness     taints, tolerations, and the rest of why a SyncTarget is not used
    where       the expression in `spec.where`
    choice      which Locations are taken if not all are wanted
    slices      destinations as slices, and slices as writes
    decide      what the controller asks for: slices, status, writes

All of these are pure.
"""
