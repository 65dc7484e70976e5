"""The agent of one edge.

It dials out to the hub, brings what its mailbox holds to the edge, and brings back status and what is born there.
Absence means nothing: an object is deleted at the edge only if the copy in the mailbox is there and is being deleted.
"""
