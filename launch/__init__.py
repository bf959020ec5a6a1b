"""Commands: `python -m launch.NAME --help` says what each does."""
