"""Predicts a run at other sizes from what it told of itself (its twin, evals/twin.py).

    python -m launch.simulate --workdir=runs/demo/rl --browsers=96 --eta=1 --learner=8

What is not named stays as the run was. Browser nodes are assumed to grow with the
browsers; devices to speed up learner and judge linearly, see --efficiency; those of the
sampler to be more of config.cluster.serving_replicas, which take more rows at once.
The last line is one JSON object.
"""

import dataclasses
import json

from absl import flags

from launch import cli
from openwebrl_jax.evals import twin, twin_fit

_WORKDIR = flags.DEFINE_string("workdir", None, "Of an RL stage.", required=True)
_SIZES = {
    "browsers": flags.DEFINE_integer("browsers", None, "Episodes at once."),
    "eta": flags.DEFINE_integer("eta", None, "Staleness bound, in iterations."),
    "learner": flags.DEFINE_integer("learner", None, "Devices of the learner."),
    "sampler": flags.DEFINE_integer(
        "sampler", None, "Devices of all the sampler's replicas."
    ),
    "judge": flags.DEFINE_integer("judge", None, "Devices of a judge of our own."),
}
_EFFICIENCY = flags.DEFINE_float(
    "efficiency", 1.0, "Gain of each further device, as a share of the first.", 0.0, 1.0
)
_PRICE = flags.DEFINE_float("usd_per_device_hour", 0.0, "0 = no price is told.", 0.0)
_SEED = flags.DEFINE_integer("seed", 0, "Of what the twin draws.")


def main() -> None:
    """The table and the JSON."""
    told = twin_fit.read(_WORKDIR.value or "")
    had = told.fit.sizes
    asked = {
        name: flag.value for name, flag in _SIZES.items() if flag.value is not None
    }
    if bool(asked.get("judge", had.judge)) != bool(had.judge):
        raise ValueError(
            f"--judge={asked['judge']}; a judge of the run's own had {had.judge} "
            "devices: with another judge it is another run"
        )
    sizes = dataclasses.replace(had, **asked)
    columns = {
        "run, measured": (had, told.measured),
        "run, its twin": (had, _simulate(told.fit, had)),
        "asked, the twin": (sizes, _simulate(told.fit, sizes)),
    }
    tables = {
        name: dataclasses.asdict(size)
        | twin.figures(figures)
        | twin.cost(size, figures, told.iterations, _PRICE.value)
        for name, (size, figures) in columns.items()
    }
    print(f"{'':24}" + "".join(f"{name:>18}" for name in tables))
    for key in tables["run, its twin"]:
        cells = "".join(f"{table[key]:>18.4g}" for table in tables.values())
        print(f"{key:24}{cells}")
    if not told.is_row_known:
        print("not known: what a further row costs the sampler; it is taken as 0")
    named = dict(zip(("measured", "twin", "asked"), tables.values(), strict=True))
    about = {"updates_fitted": told.updates, "is_row_known": told.is_row_known}
    print(json.dumps(named | about))


def _simulate(fit: twin.Fit, sizes: twin.Sizes) -> twin.Prediction:
    updates = max(20, 400 // fit.groups)  # few groups leave much to chance
    return twin.simulate(
        fit, sizes, _SEED.value, updates=updates, efficiency=_EFFICIENCY.value
    )


if __name__ == "__main__":
    cli.run(main)
