"""Trajectories and demonstrations to rows, rows to static batches."""
