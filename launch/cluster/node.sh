#!/usr/bin/env bash
# One node of a Ray cluster; it stays until it is ended.
#
#   node.sh [--dry-run] accelerator|learner|serving|browser|plain [HOST:PORT]
#   node.sh [--dry-run] wait HOST:PORT NODES
#
# Without HOST:PORT it is the cluster's head, on PORT (6379), else it joins. A node that
# offers a resource called learner, serving or browser is where such actors go; without
# any such node they go where devices are. A `serving` node takes one replica
# (config.cluster.serving_replicas). `accelerator` offers its devices alone,
# `plain` nothing: a head for the driver. A browser node has room for WORKERS workers, a
# Chromium each, by default one for every four cores.
#
# The project lies at the same path on every node, the --workdir on a disk that all
# nodes share. All have the cluster's token, or whoever reaches its ports could run what
# he likes: in RAY_AUTH_TOKEN, in the file RAY_AUTH_TOKEN_PATH, or in ~/.ray/auth_token,
# which `ray get-auth-token --generate` makes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH="$PWD/.venv/bin:$PATH" PYTHONPATH="$PWD"
# Read by Ray when a node starts: browsers and learner are no background work.
export RAY_worker_niceness=0 RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0
export RAY_ENABLE_UV_RUN_RUNTIME_ENV=0 RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}

die() { echo "node.sh: $*" >&2; exit 2; }
dry=
if [ "${1:-}" = --dry-run ]; then dry=1; shift; fi
run() { if [ "$dry" ]; then printf '%q ' "$@"; echo; else "$@"; fi; }
patience=${WAIT_S:-600}

# Until HOST:PORT is listened to.
heard() {
  # shellcheck disable=SC2016
  run timeout "$patience" bash -c \
    'until (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; do sleep 1; done' heard "${1%:*}" "${1##*:}"
}

role=${1:-} address=${2:-}
if [ "$role" = wait ]; then
  [ $# = 3 ] || die "got '$*'; wanted wait HOST:PORT NODES"
  heard "$address"
  run timeout "$patience" bash -c 'until python -c "$@"; do sleep 2; done' wait \
    'import sys, ray; ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False); sys.exit(sum(n["Alive"] for n in ray.nodes()) < int(sys.argv[2]))' \
    "$address" "$3"
  exit
fi

[ $# -le 2 ] || die "got '$*'; wanted a role and at most HOST:PORT"
flags=(--block --disable-usage-stats)
if [ "$address" ]; then
  flags+=("--address=$address")
else
  flags+=(--head "--port=${PORT:-6379}" --include-dashboard=false)
fi
case "$role" in
  accelerator) ;;
  plain) flags+=(--num-gpus=0) ;;
  learner | serving) flags+=("--resources={\"$role\": 1}") ;;
  browser)
    workers=${WORKERS:-$((($(nproc) + 3) / 4))}
    flags+=(--num-gpus=0 "--resources={\"browser\": $workers}")
    ;;
  *) die "got the role '$role'; wanted accelerator, learner, serving, browser or plain" ;;
esac
[ -z "$address" ] || heard "$address"
run exec ray start "${flags[@]}"
