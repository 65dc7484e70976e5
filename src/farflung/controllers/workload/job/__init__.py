"""Jobs: pods that are made until enough of them have succeeded, or too many have failed.

Writes pods (creates, deletes, adopts, takes off the finalizer) and the status of Jobs, and deletes Jobs when their time
to live is over.  A pod keeps a finalizer until it is counted: first the status names it as uncounted, then the
finalizer goes, then it is a number; so nothing is counted twice or not at all, whoever ends or deletes what in between.

What `podFailurePolicy`, `successPolicy`, `backoffLimitPerIndex` and `maxFailedIndexes` say is not looked at.
"""
