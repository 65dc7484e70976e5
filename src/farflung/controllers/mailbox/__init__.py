"""One mailbox for each SyncTarget: a workspace below the provider's, where what an edge should run is put.

It has the APIBinding `bind-edge` to the edge API and the SyncerConfig `the-one`.  It is made again when somebody
deletes it or a part of it, and goes when its SyncTarget goes: the name has the uid, so a SyncTarget that is made again
gets another one.  A workspace that only looks like a mailbox is left alone.

What the syncer of a mailbox reports is shown in the SyncTarget, and what it held goes with the mailbox.
"""
