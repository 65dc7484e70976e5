"""Run controllers: queues, workers, leadership, and what a process shows of itself."""
