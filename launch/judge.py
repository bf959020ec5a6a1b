"""Judges stored trajectories, and reports how far the judge agrees with their labels.

    python -m launch.judge --config=configs/judge_sft.py:tiny --workdir=runs/judged \\
        --trajectories=runs/heldout --judge=runs/judge

The judge is a checkpoint folder or a judge's workdir, or the endpoint of
`config.reward.judge`. With --demonstrate the trajectories with their labels become
demonstrations in --workdir, from which `launch.train` makes a judge.
"""

import json
import pathlib

from absl import flags
from ml_collections import config_flags

from launch import cli
from openwebrl_jax.evals import agreement, report
from openwebrl_jax.runtime import judge

_CONFIG = config_flags.DEFINE_config_file("config", None, "How the judge is asked.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder to write to.", required=True)
_STORED = flags.DEFINE_list("trajectories", [], "Workdirs that hold trajectories.")
_JUDGE = flags.DEFINE_string("judge", "", "Checkpoint folder or workdir; empty = HTTP.")
_DEMONSTRATE = flags.DEFINE_bool("demonstrate", False, "Write demonstrations.")
_REASONS = flags.DEFINE_string(
    "labels", "", "Workdir of another judge's judgements to learn from."
)
flags.mark_flag_as_required("config")


def main() -> None:
    """One of both."""
    stored = _STORED.value or []
    config, base = _CONFIG.value, pathlib.Path(_WORKDIR.value)
    if not stored:
        raise ValueError("wanted --trajectories: workdirs that hold some")
    if _DEMONSTRATE.value:
        found = judge.load(stored, with_void=bool(_REASONS.value))
        if _REASONS.value:
            found, reasons = judge.relabelled(found, _REASONS.value)
            judge.demonstrate(found, str(base), config, reasons)
        else:
            judge.demonstrate(found, str(base), config)
        print(json.dumps({"demonstrations": len(found)}))
        return
    told = judge.run(config, str(base), stored=stored, model=_JUDGE.value)
    lines = judge.read(base / judge.JUDGEMENTS)
    labelled = [line for line in lines if line["label"] is not None]
    told = agreement.report([agreement.of_line(line) for line in labelled]) | told
    text = json.dumps(report.to_json(told), indent=1)
    (base / "report.json").write_text(text + "\n")
    print(json.dumps(report.to_json({k: told[k] for k in ("accuracy", "f1", "kappa")})))


if __name__ == "__main__":
    cli.run(main)
