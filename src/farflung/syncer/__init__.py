"""The agent of one edge.

It connects to the hub, applies the copies of its mailbox at the edge, and returns their status and objects created
there.  It deletes an object only if the copy in the mailbox exists and is being deleted; an absent copy proves nothing.
"""
