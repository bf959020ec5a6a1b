"""What starts a cluster: dry runs of the scripts, the manifest, and two real nodes."""

import contextlib
import json
import os
import pathlib
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest
import ray
import yaml

from configs import common
from openwebrl_jax.core import limits, metrics
from openwebrl_jax.learn import hosts
from openwebrl_jax.runtime import cluster
from tests.conftest import ROOT
from tests.runtime import test_train

FOLDER = ROOT / "launch" / "cluster"
SCRIPTS = ("node.sh", "slurm.sh", "tpu_pod.sh")
NODE = "launch/cluster/node.sh"
FLAGS = ("--config=configs/grpo_short.py", "--workdir=/shared/my run")


def run(script, *arguments, **env):
    """(exit code, stdout, stderr) of a script, with no tool of a cluster at hand."""
    done = subprocess.run(
        [FOLDER / script, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **env},
    )
    return done.returncode, done.stdout, done.stderr


def commands(script, *arguments, **env):
    """The commands that a dry run prints, as lists of words."""
    code, told, error = run(script, "--dry-run", *arguments, **env)
    assert code == 0, error
    return [shlex.split(line) for line in told.splitlines()]


def offered(command):
    """The resources that a `ray start` names."""
    (text,) = (x for x in command if x.startswith("--resources="))
    return json.loads(text.removeprefix("--resources="))


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_sound(script):
    path = FOLDER / script
    assert os.access(path, os.X_OK)
    for check in (["bash", "-n"], ["shellcheck"]):
        if shutil.which(check[0]):
            done = subprocess.run([*check, path], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("role", ["accelerator", "learner", "serving", "browser"])
def test_a_node_that_joins_waits_for_the_head(role):
    heard, start = commands("node.sh", role, "head-1:6380", WORKERS="3")
    assert heard[0] == "timeout" and heard[-2:] == ["head-1", "6380"]
    assert start[:3] == ["exec", "ray", "start"]
    assert "--address=head-1:6380" in start and "--head" not in start
    if role == "accelerator":
        assert not any(word.startswith("--resources") for word in start)
    else:
        assert offered(start) == {role: 3 if role == "browser" else 1}
    assert ("--num-gpus=0" in start) == (role == "browser")


def test_the_head_waits_for_nobody():
    (start,) = commands("node.sh", "plain", PORT="7000")
    assert {"--head", "--port=7000", "--block", "--num-gpus=0"} <= set(start)


@pytest.mark.parametrize(
    "arguments", [(), ("browsers",), ("wait", "h:1"), ("browser", "h:1", "x")]
)
def test_a_wrong_role_is_one_line(arguments):
    code, told, error = run("node.sh", *arguments)
    assert code == 2 and not told
    assert error.startswith("node.sh: got") and "wanted" in error


def test_a_slurm_job_puts_browsers_on_its_second_part():
    told = commands(
        "slurm.sh",
        *FLAGS,
        SLURM_JOB_ID="7",
        SLURM_JOB_NODELIST_HET_GROUP_0="gpu-1,gpu-2",
        SLURM_JOB_NODELIST_HET_GROUP_1="cpu-1,cpu-2,cpu-3",
    )
    token, head, rest, browsers, wait, train = told
    assert token[0] == "sh" and token[-1].endswith("/.token-7")
    assert head[0:2] == rest[0:2] == ["srun", "--het-group=0"]
    assert "--nodelist=gpu-1" in head and head[-3:] == [NODE, "accelerator", "&"]
    assert {"--nodes=1", "--exclude=gpu-1"} <= set(rest)
    assert rest[-4:] == [NODE, "accelerator", "gpu-1:6379", "&"]
    assert {"--het-group=1", "--nodes=3", "--ntasks=3"} <= set(browsers)
    assert browsers[-4:] == [NODE, "browser", "gpu-1:6379", "&"]
    assert wait == [NODE, "wait", "gpu-1:6379", "5"]
    assert train[1:6] == [
        "-m",
        "launch.train",
        "--config.cluster.address=gpu-1:6379",
        "--config.cluster.learner_processes=2",
        "--config.batch.rows=16",
    ]
    assert tuple(train[6:]) == FLAGS


def test_a_slurm_job_says_what_it_asks_for_before_its_first_command():
    lines = (FOLDER / "slurm.sh").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    asked = [n for n, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert asked and max(asked) < first
    gpu, cpu = "\n".join(lines[n] for n in asked).split("#SBATCH hetjob")
    assert "--gpus-per-node" in gpu and "--gpus" not in cpu and "--nodes" in cpu


def test_slurm_outside_of_a_job_is_refused():
    code, _, error = run("slurm.sh", "--dry-run", *FLAGS)
    assert code != 0 and "not inside a job of two parts" in error


def test_a_tpu_slice_is_started_on_all_hosts_at_once():
    (ssh,) = commands("tpu_pod.sh", "slice-1", "us-east5-a", *FLAGS, NODES="9")
    assert ssh[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "slice-1"]
    assert {"--zone=us-east5-a", "--worker=all"} <= set(ssh)
    there = shlex.split(ssh[-1].removeprefix("--command="))
    assert there[:6] == [
        "cd",
        "openwebrl_jax",
        "&&",
        "NODES=9",
        "launch/cluster/tpu_pod.sh",
        "host",
    ]
    assert tuple(there[6:]) == FLAGS


def test_the_hosts_of_a_tpu_slice_take_their_places():
    env = {"TPU_WORKER_HOSTNAMES": "10.0.0.1,10.0.0.2,10.0.0.3"}
    head, wait, train = commands("tpu_pod.sh", "host", *FLAGS, TPU_WORKER_ID="0", **env)
    assert head == [NODE, "learner", "&"]
    assert wait == [NODE, "wait", "10.0.0.1:6379", "5"]
    assert "--config.cluster.learner_processes=3" in train
    assert tuple(train[-2:]) == FLAGS
    (other,) = commands("tpu_pod.sh", "host", *FLAGS, TPU_WORKER_ID="2", **env)
    assert other == ["exec", NODE, "learner", "10.0.0.1:6379"]


@pytest.fixture(scope="module")
def manifest():
    return list(yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text()))


@pytest.fixture(scope="module")
def ray_cluster(manifest):
    (found,) = (each for each in manifest if each["kind"] == "RayCluster")
    return found


def groups_of(found):
    return {group["groupName"]: group for group in found["spec"]["workerGroupSpecs"]}


def pods(found):
    """(rayStartParams, pod) of the head and of each group."""
    spec = found["spec"]
    for part in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        yield part["rayStartParams"], part["template"]["spec"]


def test_the_manifest_is_a_ray_cluster_of_our_version(manifest, ray_cluster):
    assert [each["kind"] for each in manifest] == [
        "PersistentVolumeClaim",
        "RayCluster",
    ]
    assert ray_cluster["apiVersion"] == "ray.io/v1"
    assert ray_cluster["spec"]["rayVersion"] == ray.__version__
    assert ray_cluster["spec"]["authOptions"] == {"mode": "token"}
    pinned = (ROOT / "requirements.txt").read_text()
    assert f"ray=={ray_cluster['spec']['rayVersion']}\n" in pinned


def test_parameters_of_ray_start_are_strings(ray_cluster):
    """The operator refuses numbers and booleans; resources are quoted once more."""
    program = pathlib.Path(sys.executable).with_name("ray")
    told = subprocess.run([program, "start", "--help"], capture_output=True, text=True)
    for parameters, _ in pods(ray_cluster):
        assert parameters
        for name, value in parameters.items():
            assert isinstance(value, str) and f"--{name}" in told.stdout
    wanted = {"browser": {"browser": 4}, "tpu-slice": {"learner": 1}}
    wanted["serving"] = {"serving": 1}
    for name, group in groups_of(ray_cluster).items():
        quoted = group["rayStartParams"].get("resources")
        assert wanted.get(name) == (quoted and json.loads(json.loads(quoted)))


def test_browsers_have_no_accelerator_and_learners_have(ray_cluster):
    groups = groups_of(ray_cluster)
    limits = {
        name: group["template"]["spec"]["containers"][0]["resources"]["limits"]
        for name, group in groups.items()
    }
    assert limits["accelerator"]["nvidia.com/gpu"] == "8"
    assert limits["tpu-slice"]["google.com/tpu"] == "4"
    assert set(limits["browser"]) == {"cpu", "memory"}
    hosts_, topology = groups["tpu-slice"]["numOfHosts"], "4x4"
    selector = groups["tpu-slice"]["template"]["spec"]["nodeSelector"]
    assert selector["cloud.google.com/gke-tpu-topology"] == topology
    assert hosts_ * 4 == 16
    for group in groups.values():
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_all_pods_share_the_volume_and_the_image_of_the_dockerfile(
    manifest, ray_cluster
):
    claim = manifest[0]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    docker = (FOLDER / "Dockerfile").read_text()
    (folder,) = re.findall(r"^WORKDIR (\S+)$", docker, re.M)
    for _, pod in pods(ray_cluster):
        (container,) = pod["containers"]
        assert container["workingDir"] == folder
        assert container["image"].startswith("openwebrl_jax:")
        assert {each["mountPath"] for each in container["volumeMounts"]} == {
            "/runs",
            "/dev/shm",
        }
        assert (
            pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
            == (claim["metadata"]["name"])
        )
        told = {each["name"]: each["value"] for each in container["env"]}
        assert told.items() <= {**cluster._QUIET}.items()


def test_commands_in_the_files_name_real_flags_and_keys():
    """What the comments tell a reader to type is what there is."""
    keys = limits.leaves(common.get_config())
    for path in FOLDER.iterdir():
        text = path.read_text()
        for key in re.findall(r"--config\.([a-z_.]+)=", text):
            assert key in keys, f"{path.name}: {key}"
        for name in re.findall(r"configs/\w+\.py", text):
            assert (ROOT / name).exists()


@contextlib.contextmanager
def nodes(*commands, env):
    """Nodes of a cluster, each in a process group of its own."""
    running = []
    try:
        for command in commands:
            running.append(
                subprocess.Popen(
                    [FOLDER / "node.sh", *command[0]],
                    env={**env, **command[1]},
                    start_new_session=True,
                    stdout=subprocess.DEVNULL,
                )
            )
        yield
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


@pytest.mark.long
def test_two_nodes_train_as_the_scripts_say(tiny_folder, tmp_path):
    """The very commands, on one machine: a head, a browser node, a wait, a run."""
    short = tempfile.mkdtemp(dir="/tmp")  # Ray's sockets have short names
    address = f"127.0.0.1:{hosts.free_port()}"
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    env = {
        **test_train.one_device(),
        "RAY_TMPDIR": short,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "WAIT_S": "120",
    }
    workdir = tmp_path / "run"
    train = [
        *test_train.command(tiny_folder, workdir),
        f"--config.cluster.address={address}",
        "--config.algo.iterations=2",
    ]
    head = (("plain",), {"PORT": address.split(":")[1]})
    browser = (("browser", address), {"WORKERS": "1"})
    try:
        with nodes(head, browser, env=env):
            wait = [FOLDER / "node.sh", "wait", address, "2"]
            assert subprocess.run(wait, env=env).returncode == 0
            one_more = [*train, "--config.rollout.workers=2"]
            refused = subprocess.run(one_more, capture_output=True, text=True, env=env)
            assert refused.returncode == 2
            assert "1 browser" in refused.stderr.strip().splitlines()[-1]
            done = subprocess.run(
                train, capture_output=True, text=True, env=env, timeout=280
            )
            assert done.returncode == 0, done.stderr[-2000:]
    finally:
        shutil.rmtree(short, ignore_errors=True)
    told = metrics.read(workdir / "metrics.jsonl")
    assert [record["step"] for record in told] == [1, 2]
    assert (pathlib.Path(workdir) / "export" / "model.safetensors").exists()
