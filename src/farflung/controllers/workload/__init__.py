"""The workload controllers and the scheduler of an embedded edge, which has one node.

    change ──► keys ──► reconcile one owner ──► decide (pure) ──steps──► WorkloadClient ──► API

Each folder except `model/` has one controller; `edge/workload_controllers.py` starts them.  `owner_controller.py` has
the loop of those that own objects: it adopts and releases children, and the controller takes one step.  A step compares
the observed state with the spec.  The caches assume each write at once, and the change queues the owner again until
nothing is left to do.
"""
