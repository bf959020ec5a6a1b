"""One jitted update, its state, checkpoints and loop."""
