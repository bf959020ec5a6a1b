"""A real browser behind one door: reset, step, facts, close."""
