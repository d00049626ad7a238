"""Oracles of every operation in NumPy float64, and what tests of kernels need: yours too."""
