"""The placement translator: what each EdgePlacement selects, copied into the mailboxes that its slices lead to.

    values      how objects are named, wherever they are
    kinds       which kinds go where
    what        what a placement selects
    projecting  what of an object goes into a mailbox, and what to write if something is there
    merging     the same object from several workspaces
    customizing what is different in each place
    syncer_config   what a syncer is told to do
    guard       how much may be withdrawn at once

All of these are pure.
"""
