#!/usr/bin/env bash
#SBATCH --job-name=openwebrl
#SBATCH --output=%x-%j.out
#SBATCH --time=48:00:00
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --exclusive
#SBATCH hetjob
#SBATCH --nodes=4 --ntasks-per-node=1 --exclusive
#
# Trains on a SLURM cluster: learner and serving on the first part's GPU nodes, browsers
# on the second part's CPU nodes. Submitted from the project's folder, which all nodes
# share; flags are those of launch.train, where batch.rows (16 here) has to be a multiple
# of the learner's devices:
#
#   sbatch launch/cluster/slurm.sh --config=configs/grpo_short.py --workdir=runs/short
#   launch/cluster/slurm.sh --dry-run ...      prints what would be run, in order
#
# Partitions and accounts: `sbatch --partition=gpu ... : --partition=cpu ... slurm.sh`.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"
node=launch/cluster/node.sh
[ -x "$node" ] || { echo "slurm.sh: submit it from the project's folder" >&2; exit 2; }

dry=
if [ "${1:-}" = --dry-run ]; then dry=1; shift; fi
quoted() { printf '%q ' "$@"; }
run() { if [ "$dry" ]; then quoted "$@"; echo; else "$@"; fi; }
start() { if [ "$dry" ]; then quoted "$@"; echo '&'; else "$@" & fi; }

# A list like gpu-[1-2] as one name a line; without SLURM it must be gpu-1,gpu-2.
names() {
  if command -v scontrol >/dev/null; then scontrol show hostnames "$1"; else tr , '\n' <<<"$1"; fi
}
mapfile -t gpu < <(names "${SLURM_JOB_NODELIST_HET_GROUP_0:?not inside a job of two parts}")
mapfile -t cpu < <(names "${SLURM_JOB_NODELIST_HET_GROUP_1:?not inside a job of two parts}")
rest=$((${#gpu[@]} - 1))
address=${gpu[0]}:${PORT:-6379}

# The whole job ends with this script, whichever way that ends; so does its token.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$PWD/.token-${SLURM_JOB_ID:-0}"
end() {
  [ "$dry" ] && return
  rm -f "$RAY_AUTH_TOKEN_PATH"
  jobs -p | xargs -r kill 2>/dev/null || true
}
trap end EXIT
run sh -c 'umask 077; od -An -N32 -tx1 /dev/urandom | tr -d " \n" >"$1"' sh "$RAY_AUTH_TOKEN_PATH"
start srun --het-group=0 --nodes=1 --ntasks=1 "--nodelist=${gpu[0]}" "$node" accelerator
if [ "$rest" -gt 0 ]; then
  start srun --het-group=0 "--nodes=$rest" "--ntasks=$rest" "--exclude=${gpu[0]}" \
    "$node" accelerator "$address"
fi
start srun --het-group=1 "--nodes=${#cpu[@]}" "--ntasks=${#cpu[@]}" "$node" browser "$address"
run "$node" wait "$address" "$((${#gpu[@]} + ${#cpu[@]}))"
run .venv/bin/python -m launch.train "--config.cluster.address=$address" \
  "--config.cluster.learner_processes=${#gpu[@]}" --config.batch.rows=16 "$@"
