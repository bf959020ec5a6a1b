"""Qwen3-VL in Flax, and the checkpoint folders it is loaded from."""
