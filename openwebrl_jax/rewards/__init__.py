"""Checkers and judges: from a trajectory to a Reward."""
