"""The base of every controller: informers, work queues, workers, plans, leader election, health and metrics."""
