"""Which cluster is the best one for a group of virtual machines.  Pure: nothing here knows of a server, or of the time.

values      what is asked for, what there is, and what is decided
"""
