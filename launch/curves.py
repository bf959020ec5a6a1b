"""Draws curves.png of a run, while it goes on or afterwards, from its metrics.

python -m launch.curves --workdir=runs/short
"""

import pathlib

from absl import flags

from launch import cli

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "A run's folder, with metrics.jsonl.", required=True
)


def main() -> None:
    """One picture; what a run has not recorded says so in its panel."""
    from openwebrl_jax.core import metrics
    from openwebrl_jax.evals import curves

    base = pathlib.Path(_WORKDIR.value)
    records = metrics.read(base / "metrics.jsonl")
    if not records:
        raise ValueError(f"{base} holds no metrics.jsonl with a record; wanted a run's")
    curves.draw(base / "curves.png", {}, records)
    print(base / "curves.png")


if __name__ == "__main__":
    cli.run(main)
