"""Scheduling, the executor thread and the ring of batches between them."""
