"""The Job controller: creates pods until enough of them have succeeded or too many have failed.

It writes Pods and the status of Jobs, and deletes Jobs whose TTL has expired.  A pod has a finalizer until it is
counted: the status lists its uid as uncounted, then the finalizer is removed, then the counter is increased.  So no pod
is counted twice or missed.

`podFailurePolicy`, `successPolicy`, `backoffLimitPerIndex` and `maxFailedIndexes` are ignored.
"""
