"""Configs, workdirs and machines that are refused, each with one clear message."""

import errno
import json
import math
import os

import pytest

from configs import common, grpo_long, grpo_short, mt_sft
from openwebrl_jax.core import checks, limits

ALL = [
    (module, variant)
    for module in (mt_sft, grpo_short, grpo_long)
    for variant in ("", "tiny")
]


# Of the config under test, so that its messages do not change with the experiments.
SIZES = {
    "tasks.names": ("click-test", "click-tab", "focus-text", "click-link", "click-box"),
    "tasks.train_seeds": (0, 1_000_000),
    "algo.group": 8,
    "sample.response_tokens": 32,
    "sample.context_tokens": 320,
    "sample.prompt_buckets": (128, 192, 320),
    "batch.rows": 32,
    "batch.lengths": (128, 192, 320),
    "batch.loss_tokens": 32,
    "rollout.task_timeout_s": 60.0,
    "evaluate.episodes": 400,
}


def make_config(**changes):
    """A sound config of MM-GRPO with changes; `a__b` stands for the key a.b."""
    config = grpo_short.get_config("tiny")
    config.update_from_flattened_dict(
        SIZES | {key.replace("__", "."): value for key, value in changes.items()}
    )
    return config


def refusal(config, **options) -> str:
    with pytest.raises(ValueError) as caught:
        checks.check_config(config, **{"look_at_disk": False, **options})
    return str(caught.value)


@pytest.mark.parametrize(("module", "variant"), ALL)
def test_the_experiments_pass(module, variant):
    config = module.get_config(variant)
    with config.unlocked():
        config.tasks.path = config.tasks.path or "data/tasks.parquet"
        config.sft.data = config.sft.data or ("data/teacher",)
    checks.check_config(config, devices=8, look_at_disk=False)


def test_tables_name_keys_that_there_are():
    keys = limits.leaves(common.get_config()).keys()
    named = {*limits.CHOICES, *limits.INTERVALS, *limits.RISING}
    assert named <= keys
    for free in limits.FREE:
        assert any(key == free or key.startswith(f"{free}.") for key in keys)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stage": "ppo"}, "config.stage='ppo'; wanted one of grpo, sft"),
        ({"algo__loss": "dpo"}, "config.algo.loss='dpo'; wanted one of"),
        ({"algo__weighting": "mean"}, "wanted one of turn_mean, traj_mean"),
        ({"algo__advantage": "gae"}, "config.algo.advantage='gae'"),
        ({"optim__name": "sgd"}, "wanted one of adamw, muon"),
        ({"optim__schedule": "step"}, "wanted one of constant, cosine, trapezoid"),
        ({"algo__group": 1}, "config.algo.group=1; wanted a number in [2, 1024]"),
        ({"sample__temperature": 0.0}, "config.sample.temperature=0.0; wanted"),
        ({"sample__temperature": -1.0}, "config.sample.temperature=-1.0"),
        ({"sample__temperature": math.nan}, "config.sample.temperature=nan"),
        ({"web__navigate_timeout_s": 0.0}, "config.web.navigate_timeout_s=0.0"),
        ({"web__action_timeout_s": 0.0004}, "wanted a number in [0.01, 86400]"),
        ({"reward__judge__timeout_s": -1.0}, "config.reward.judge.timeout_s=-1.0"),
        ({"sample__timeout_s": math.nan}, "config.sample.timeout_s=nan"),
        ({"rollout__task_timeout_s": math.inf}, "config.rollout.task_timeout_s=inf"),
        ({"sample__prompt_buckets": (320, 128)}, "wanted positive sizes in rising"),
        ({"batch__lengths": ()}, "config.batch.lengths=(); wanted"),
        ({"batch__lengths": (128, 320, 320)}, "wanted positive sizes in rising order"),
        ({"sample__response_tokens": 320}, "leaves no prompt in context_tokens=320"),
        ({"sample__prompt_buckets": (128,)}, "ends at 128; wanted at least 288"),
        ({"batch__lengths": (128, 192)}, "ends at 192; wanted at least 320"),
        ({"batch__loss_tokens": 16}, "config.batch.loss_tokens=16; wanted at least 32"),
        ({"algo__loss": "mt_sft"}, "stage grpo wants 'mm_grpo'"),
        ({"rollout__lease_timeout_s": 60.0}, "is leased a second time"),
        ({"tasks__names": ()}, "wanted names of MiniWoB++ pages"),
        ({"tasks__train_seeds": (5, 5)}, "wanted (first, last + 1)"),
        ({"tasks__heldout_seeds": (9, 5000)}, "overlaps train_seeds=(0, 1000000)"),
        ({"tasks__heldout_seeds": (1_000_000, 1_000_010)}, "there are 50 held-out"),
        ({"reward__judge__base_url": "localhost:80"}, "wanted http(s)://"),
        ({"reward__judge__base_url": "http://me:key@host/v1"}, "a user or a query"),
        ({"reward__judge__base_url": "http://host/v1?key=k"}, "a user or a query"),
        ({"web__tape": "play"}, "config.web.tape='play'; wanted one of , record, rep"),
        ({"web__tape": "record"}, "config.web.tape_folder=''; wanted a folder"),
        ({"rollout__canary_url": "a.com"}, "config.rollout.canary_url='a.com'; wanted"),
        ({"mesh__fsdp": 0}, "config.mesh.fsdp=0; wanted -1"),
        ({"mesh__fsdp": 5}, "not a multiple of data x fsdp = 5; set it to 35"),
    ],
)
def test_a_bad_value_is_named_with_its_mend(changes, said):
    """R44: time-outs of 0, 0.4 ms, -1 and NaN among them."""
    assert said in refusal(make_config(**changes))


@pytest.mark.parametrize("name", ["top_p", "top_k", "min_p", "repetition_penalty"])
def test_no_rule_but_the_temperature_can_be_asked_for(name):
    """R14: sampler and learner would differ by what is cut off."""
    with pytest.raises((AttributeError, KeyError)):
        setattr(make_config().sample, name, 0.9)


def test_all_faults_come_in_one_message():
    text = refusal(make_config(algo__group=1, algo__loss="x", tasks__names=()))
    assert text.startswith("3 faults in the config:")
    for said in ("algo.group=1", "tasks.names=()", "algo.loss='x'"):
        assert text.count(said) == 1


def test_an_empty_suite_file_is_refused():
    assert "config.tasks.path=''" in refusal(make_config(tasks__suite="file"))


@pytest.mark.parametrize(
    ("devices", "fsdp", "said"),
    [(5, -1, "set it to 35"), (6, 4, "divide the learner's 6 devices")],
)
def test_the_mesh_must_fit_the_devices(devices, fsdp, said):
    assert said in refusal(make_config(mesh__fsdp=fsdp), devices=devices)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sft__data": ()}, "wanted folders of trajectories"),
        ({"sft__abilities": ("acting", "singing", "planning")}, "some of acting"),
        ({"sft__shares": (1.0,)}, "wanted one number in [0, inf) for each"),
        ({"sft__shares": (0.0, 0.0, 0.0)}, "not all 0"),
        ({"sft__shares": (1.0, math.nan, 0.0)}, "wanted one number"),
    ],
)
def test_what_sft_learns_from_is_checked(changes, said):
    config = mt_sft.get_config("tiny")
    config.update_from_flattened_dict(
        {key.replace("__", "."): value for key, value in changes.items()}
    )
    assert said in refusal(config)


def test_a_pasted_key_is_refused_and_not_repeated():
    text = refusal(make_config(reward__judge__api_key_env="sk-12345"))
    assert "never the key" in text and "12345" not in text


def test_a_missing_start_names_the_command_that_makes_it(tmp_path):
    config = make_config(init_from=str(tmp_path / "sft"), init_command="python -m x")
    assert "make it: python -m x" in refusal(config, look_at_disk=True)
    (tmp_path / "sft").mkdir()
    checks.check_config(config)


def test_success_must_be_known_by_checks_or_judge(tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    config = make_config(init_from="", tasks__suite="file", tasks__path=str(tasks))
    assert "there is no such file" in refusal(config, look_at_disk=True)
    tasks.write_text('{"id": "1", "checks": [{}]}\n{"id": "2"}\n')
    assert "bring no checks" in refusal(config, look_at_disk=True)
    config.reward.judge.base_url = "http://127.0.0.1:1/v1"
    config.reward.judge.api_key_env = "NO_SUCH_KEY"
    assert "NO_SUCH_KEY, which is not set" in refusal(config, look_at_disk=True)
    config.reward.judge.api_key_env = ""
    checks.check_config(config)
    config.reward.judge.base_url = ""
    tasks.write_text('{"id": "1", "checks": [{}]}\n\n')
    checks.check_config(config)


def test_no_accelerator_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"configs/NAME\.py:tiny"):
        checks.check_platform("", "cpu")
    checks.check_platform("", "gpu")
    checks.check_platform("cpu", "cpu")
    checks.check_platform("cpu", "gpu")


def test_a_workdir_takes_the_same_config_again(tmp_path):
    workdir = tmp_path / "run"
    checks.check_workdir(workdir, make_config())
    assert not workdir.exists()
    checks.keep_config(workdir, make_config())
    longer = make_config(algo__iterations=99, checkpoint__keep=7, rollout__workers=3)
    checks.check_workdir(workdir, longer)
    checks.keep_config(workdir, longer)
    written = json.loads((workdir / "config.json").read_text())
    assert written["config"]["algo.iterations"] == 99
    assert written["digest"] == checks.digest(make_config())
    assert [path.name for path in workdir.iterdir()] == ["config.json"]


def test_a_text_is_kept_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "tasks.sha256"
    checks.keep_text(path, "old\n")
    os.utime(path, ns=(1, 1))
    checks.keep_text(path, "old\n")
    assert path.stat().st_mtime_ns == 1  # nothing is written at every start

    def full(_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        checks.keep_text(path, "new\n")
    assert path.read_text() == "old\n"
    monkeypatch.undo()
    checks.keep_text(path, "new\n")
    assert path.read_text() == "new\n" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("store", ["gs://b/x", "gs:/b/x", "s3://b/x", "file:///x"])
def test_an_object_store_is_no_workdir(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="object store; wanted a folder on a disk"):
        checks.home(store)
    with pytest.raises(ValueError, match="object store"), checks.held(store):
        pass
    assert not any(tmp_path.iterdir())


def test_a_workdir_is_a_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert checks.home("runs/a:b") == str(tmp_path / "runs" / "a:b")
    assert checks.home(tmp_path) == str(tmp_path)


def test_a_workdir_of_another_config_is_refused_with_the_differences(tmp_path):
    checks.keep_config(tmp_path, make_config())
    before = (tmp_path / "config.json").read_text()
    other = make_config(algo__group=4, tasks__names=("click-test",))
    with pytest.raises(ValueError) as caught:
        checks.check_workdir(tmp_path, other)
    assert "algo.group: 8 there, 4 here" in str(caught.value)
    assert "tasks.names" in str(caught.value)
    assert (tmp_path / "config.json").read_text() == before
    assert checks.digest(other) != checks.digest(make_config())


def test_a_checkpoint_folder_or_a_file_is_no_workdir(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    with pytest.raises(ValueError, match="not written by a run"):
        checks.check_workdir(tmp_path, make_config())
    with pytest.raises(ValueError, match="is a file"):
        checks.check_workdir(tmp_path / "config.json", make_config())


def test_derived_numbers_of_the_reference():
    derived = checks.derive(grpo_short.get_config())
    assert derived["episodes_per_iteration"] == 240
    assert derived["turns_per_iteration_max"] == 3600
    assert derived["steps_per_iteration_max"] == 2 * 15
    assert derived["optimizer_steps_max"] == 90 * 30
    assert derived["groups_at_once_max"] == 96
    assert derived["prompt_tokens_max"] == 32_768 - 1024
    assert derived["constant_k"] == 1024 * 15
    assert checks.derive(mt_sft.get_config())["optimizer_steps_max"] == 72


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("[0, 1)", (0, 0.5), (-0.1, 1)),
        ("(0, 1]", (1,), (0, 1.1)),
        ("[2, inf)", (2, 9), (1, math.inf)),
        ("(-inf, inf)", (-9, 9), (math.inf, math.nan)),
    ],
)
def test_intervals(interval, inside, outside):
    assert all(limits.is_within(value, interval) for value in inside)
    assert not any(limits.is_within(value, interval) for value in outside)
