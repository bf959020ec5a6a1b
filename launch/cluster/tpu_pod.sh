#!/usr/bin/env bash
# Trains on a TPU pod slice: the learner on all hosts of the slice, serving and browsers
# on machines of their own, for a slice runs one program at a time.
#
#   tpu_pod.sh [--dry-run] NAME ZONE FLAGS...   from anywhere with gcloud
#   tpu_pod.sh [--dry-run] host FLAGS...        on every host of the slice at once
#
# FLAGS are those of launch.train, where batch.rows (16 here) has to be a multiple of the
# slice's chips. The project lies in FOLDER (~/openwebrl_jax) on every
# host, the cluster's token in ~/.ray/auth_token (see node.sh), the --workdir on a disk
# that all share. Then, on each other machine,
#
#   launch/cluster/node.sh serving HOST:6379    a TPU VM, one for each serving replica
#   launch/cluster/node.sh browser HOST:6379    a CPU machine
#
# with HOST the slice's first one. Training begins when NODES nodes are there, by default
# the slice, one for serving and one for browsers. A single TPU VM needs none of this:
# launch.train with --config.cluster.colocated=True.
set -euo pipefail
dry=
if [ "${1:-}" = --dry-run ]; then dry=1; shift; fi
quoted() { printf '%q ' "$@"; }
run() { if [ "$dry" ]; then quoted "$@"; echo; else "$@"; fi; }
start() { if [ "$dry" ]; then quoted "$@"; echo '&'; else "$@" & fi; }
die() { echo "tpu_pod.sh: $*" >&2; exit 2; }

if [ "${1:-}" != host ]; then
  [ $# -ge 2 ] || die "got '$*'; wanted NAME ZONE FLAGS..., or host FLAGS..."
  name=$1 zone=$2
  shift 2
  folder=${FOLDER:-openwebrl_jax}
  run gcloud compute tpus tpu-vm ssh "$name" "--zone=$zone" --worker=all \
    "--command=cd $folder && NODES=${NODES:-} launch/cluster/tpu_pod.sh host $(quoted "$@")"
  exit
fi
shift
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
node=launch/cluster/node.sh

# GKE sets both variables; elsewhere a TPU VM is told by its metadata server, which
# names each host as NAME:PORT:ADDRESS.
told() {
  curl --silent --fail --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1" ||
    die "no host of a TPU slice: TPU_WORKER_ID is not set and $1 is not to be had"
}
id=${TPU_WORKER_ID:-$(told agent-worker-number)}
hosts=${TPU_WORKER_HOSTNAMES:-$(told worker-network-endpoints | tr , '\n' | cut -d: -f3 | paste -sd,)}
# The learner's processes take their places by it.
export TPU_WORKER_ID=$id RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
IFS=, read -ra host <<<"$hosts"
address=${host[0]}:${PORT:-6379}

if [ "$id" != 0 ]; then
  run exec "$node" learner "$address"
  exit
fi
trap 'jobs -p | xargs -r kill 2>/dev/null || true' EXIT
start "$node" learner
run "$node" wait "$address" "${NODES:-$((${#host[@]} + 2))}"
run .venv/bin/python -m launch.train "--config.cluster.address=$address" \
  "--config.cluster.learner_processes=${#host[@]}" --config.batch.rows=16 "$@"
