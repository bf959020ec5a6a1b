"""Train visual web agents with JAX: SFT, then online RL in a real Chromium.

Rooms and the floors they stand on are drawn in the README.
"""
