"""The placement translator: what each EdgePlacement selects, copied into the mailboxes that its slices lead to.

    values      how objects are named, wherever they are
    kinds       which kinds go where
    what        what a placement selects
    projecting  what of an object goes into a mailbox, and what to write if something is there
    merging     the same object from several workspaces
    customizing what is different in each place
    syncer_config   what a syncer is told to do
    guard       how much may be withdrawn at once
    world       every object that was heard of
    engine      what goes into which mailbox
    offers      which kinds workspaces serve
    around      what has to be around a copy in its mailbox
    copies      what mailboxes have of what was made for placements
    withdrawals which copies go, and which are held
    desired     one object of one mailbox, as it should be
    problems    what keeps parts of a placement from where they should be
    knowledge   all of it, and what has to be looked at again when something is heard

All of these are pure.  The others do what they say:

    listening   hear of everything, for whoever makes something of it
    feeds       hear of the objects of every kind
    serving     what workspaces serve, as they say themselves
    gathering   what an object of a mailbox is made of
    copier      one object of one mailbox
    configurer  what the syncer of each mailbox is told
    telling     conditions and Events
    controller  all of it at work
"""
