"""One mailbox for each SyncTarget: a workspace below the provider workspace, with the copies for one edge.

It has the APIBinding `bind-edge` to the edge API and the SyncerConfig `the-one`.  The controller creates a deleted
mailbox, binding or SyncerConfig again, and deletes a mailbox after its SyncTarget.  The name of a mailbox contains the
uid, so a SyncTarget that is created again gets another one.  Workspaces without the annotation are left alone.

The reporter copies the syncer's report to the SyncTarget; the releaser removes finalizers in a terminating mailbox.
"""
