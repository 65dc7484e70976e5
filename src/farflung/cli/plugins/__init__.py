"""The kubectl plugins `kubectl ws` and `kubectl kcp`.

A person waits for every one of these commands, so nothing here imports the rest of farflung or anything beyond the
standard library before it is known to be needed.
"""
