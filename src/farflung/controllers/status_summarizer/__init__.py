"""The status summarizer: what all copies of an object say together, where the object is described.

values      how copies and what is said of them are named
digest      what counts of one copy
tally       all copies of one object, kept up to date one by one
collecting  questions in CEL, and their answers
returning   the status of the only copy, where the object is described
"""
