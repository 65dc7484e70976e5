"""The global scheduler: binds virtual machines to Clusters.

engine/        decisions and reservations as values
files/         flavors, sites and policy in files, and their reload
decide         the model: pending requests, reservations, evictions
controller     wiring, and the loop of decisions
binder         writes bindings, and evicts
clusters       follows Clusters and their SyncTargets, and writes their status
delivery       EdgePlacements and labels that deliver machines, and copies that terminate
status_writer  conditions and Events of machines
failover       when machines leave a Cluster
object_readers Pods, Allocations and Clusters as values
"""
