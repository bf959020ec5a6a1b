"""Experiments: `--config=configs/NAME.py`, or `--config=configs/NAME.py:tiny`."""
