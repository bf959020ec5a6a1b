"""Bad input: one clear line, before Ray or any actor is started."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import ray
from safetensors import numpy as safetensors

from configs import grpo_short, mt_sft
from openwebrl_jax.core import checks
from openwebrl_jax.runtime import demonstrate, train


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "model")


@pytest.fixture
def config(folder):
    config = grpo_short.get_config("tiny")
    config.init_from = str(folder)
    return config


def refusal(config, tmp_path) -> str:
    """The line that the config is refused with; nothing may be running after it."""
    with pytest.raises(ValueError) as caught:
        train.check(config, str(tmp_path / "run"))
    assert not ray.is_initialized()
    return str(caught.value)


def rewrite(folder, change):
    path = folder / "model.safetensors"
    tensors = safetensors.load_file(path)
    change(tensors)
    safetensors.save_file(tensors, path, metadata={"format": "pt"})


def test_a_good_config_gives_its_checkpoint_folder(config, folder, tmp_path):
    assert train.check(config, str(tmp_path / "run")) == str(folder)


def test_a_missing_checkpoint_names_the_command_that_makes_it(config, tmp_path):
    config.init_from = str(tmp_path / "sft")
    told = refusal(config, tmp_path)
    assert "sft" in told and config.init_command in told


def test_a_missing_weights_file(config, folder, tmp_path):
    (folder / "model.safetensors").unlink()
    assert "model.safetensors" in refusal(config, tmp_path)


def test_a_truncated_weights_file(config, folder, tmp_path):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    assert "model.safetensors" in refusal(config, tmp_path)


def test_a_tensor_of_another_shape(config, folder, tmp_path):
    name = "model.language_model.norm.weight"
    rewrite(folder, lambda tensors: tensors.update({name: np.ones(7, np.float32)}))
    told = refusal(config, tmp_path)
    assert name in told and "7" in told


def test_a_missing_tensor(config, folder, tmp_path):
    name = "model.language_model.norm.weight"
    rewrite(folder, lambda tensors: tensors.pop(name))
    assert name in refusal(config, tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "preprocessor_config.json"])
def test_files_beside_the_weights(config, folder, tmp_path, name):
    (folder / name).write_text("{")
    assert "tokenizer or preprocessor" in refusal(config, tmp_path)
    (folder / name).unlink()
    assert str(folder) in refusal(config, tmp_path)


def test_a_prompt_that_no_context_holds(config, tmp_path):
    config.agent.prompt = "full"
    told = refusal(config, tmp_path)
    assert "config.agent.prompt='full'" in told and "leaves 128" in told


def test_a_folder_that_nobody_made_is_not_sought_on_the_hub_alone(config, tmp_path):
    config.init_from, config.init_command = "", ""
    config.model.path = "runs/none"
    assert "python -m launch.make_tiny --out=runs/none" in refusal(config, tmp_path)


def test_an_unknown_page(config, tmp_path):
    config.tasks.names = ("click-buton",)
    assert "click-button" in refusal(config, tmp_path)


def test_a_blocklist_of_no_task(config, tmp_path):
    config.tasks.blocklist = ("miniwob/click-tab/*", "shop/*")
    assert "'shop/*' matches no task" in refusal(config, tmp_path)
    config.tasks.blocklist = ("*",)
    assert "leaves no task" in refusal(config, tmp_path)


def test_no_chromium(config, tmp_path):
    config.web.chromium = str(tmp_path / "chromium")
    assert "chromium" in refusal(config, tmp_path)


def test_a_workdir_of_another_config(config, tmp_path):
    checks.keep_config(tmp_path / "run", config)
    config.algo.group = 6
    told = refusal(config, tmp_path)
    assert "algo.group: 8 there, 6 here" in told


@pytest.mark.parametrize("store", ["gs://bucket/run", "gs:/bucket/run"])
def test_a_workdir_in_an_object_store(config, store):
    with pytest.raises(ValueError, match="object store; wanted a folder on a disk"):
        train.check(config, store)


def test_other_tasks_under_the_same_config(config, tmp_path):
    """R35: a file that was edited is refused by its hash."""
    (tmp_path / "run").mkdir()
    path = tmp_path / "tasks.jsonl"
    checks_ = [{"kind": "answer", "equals": "1"}]
    task = {"id": "a", "start_url": "http://a.test/", "intent": "x", "checks": checks_}
    path.write_text(json.dumps(task) + "\n")
    config.tasks.suite, config.tasks.path = "file", str(path)
    train.check(config, str(tmp_path / "run"))
    train._keep(config, str(tmp_path / "run"))
    train.check(config, str(tmp_path / "run"))
    digest = tmp_path / "run" / "tasks.sha256"
    digest.write_text("")  # a full disk, once: nothing is known, and nothing refused
    train.check(config, str(tmp_path / "run"))
    train._keep(config, str(tmp_path / "run"))
    assert len(digest.read_text()) == 65
    path.write_text(json.dumps(task | {"intent": "y"}) + "\n")
    assert "training tasks have changed" in refusal(config, tmp_path)


def test_other_demonstrations_under_the_same_config(folder, tmp_path):
    config = mt_sft.get_config("tiny")
    config.model.path, config.sft.data = str(folder), (str(tmp_path / "demos"),)
    (tmp_path / "run").mkdir()
    (tmp_path / "demos" / "trajectories").mkdir(parents=True)
    path = tmp_path / "demos" / demonstrate.LIST
    path.write_text('["a", "b"]')
    train.check(config, str(tmp_path / "run"))
    train._keep(config, str(tmp_path / "run"))
    train.check(config, str(tmp_path / "run"))
    path.write_text('["a", "b", "c"]')
    assert "demonstrations have changed" in refusal(config, tmp_path)


def test_no_accelerator_names_the_tiny_variant(config, tmp_path):
    config.cluster.platform = ""
    assert ":tiny" in refusal(config, tmp_path)


def command(*flags):
    done = subprocess.run(
        [sys.executable, "-m", "launch.train", *flags], capture_output=True, text=True
    )
    return done.returncode, done.stderr.strip()


def test_the_command_says_it_in_one_line(tmp_path):
    code, told = command(
        "--config=configs/grpo_short.py:tiny",
        f"--workdir={tmp_path}/run",
        f"--config.init_from={tmp_path}/none",
    )
    assert code == 2 and told.startswith("refused: ") and "\n" not in told


def test_a_second_run_in_a_workdir_is_refused(folder, tmp_path):
    with checks.held(tmp_path / "run"):
        code, told = command(
            "--config=configs/grpo_short.py:tiny",
            f"--workdir={tmp_path}/run",
            f"--config.init_from={folder}",
        )
    assert code == 2 and "another process runs" in told and "\n" not in told


def test_an_unknown_key_is_named(tmp_path):
    code, told = command(
        "--config=configs/grpo_short.py:tiny",
        f"--workdir={tmp_path}/run",
        "--config.algo.grup=4",
    )
    assert code != 0 and "grup" in told and "group" in told and "\\" not in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()


def test_a_lenient_reading_is_not_for_training(config, tmp_path):
    config.agent.lenient = True
    assert "agent.lenient" in refusal(config, tmp_path)


@pytest.mark.parametrize(
    "flags, part",
    [
        (("--config=configs/nope.py", "--workdir=x"), "nope.py"),
        (("--config=configs/grpo_short.py:tinny", "--workdir=x"), "'tinny'"),
        (("--config=configs/grpo_short.py:tiny",), "workdir"),
        (("--config=configs/mt_sft.py:tiny", "--config.seed=x"), "seed"),
    ],
)
def test_wrong_flags_are_one_clear_word(flags, part):
    code, told = command(*flags)
    assert code == 2 and part in told and "\n" not in told
