"""One of two processes of a learner: `python -m tests.learn.host INDEX PORT FOLDER`.

It goes on from the newest checkpoint, takes the steps that are left, saves each second
one, and prints the digest of its parameters. With DIE_AT=n process 1 dies before step
n, in mid-air.
"""

import hashlib
import os
import sys

STEPS = 4


def main(index: int, port: str, folder: str) -> None:
    from openwebrl_jax.learn import hosts

    hosts.join(hosts.Seat(index, 2, f"127.0.0.1:{port}"))
    from openwebrl_jax.learn import checkpoint
    from openwebrl_jax.learn import state as states
    from tests.learn import toys

    assert toys.jax.device_count() == 8 and toys.jax.local_device_count() == 4
    # A GPU job's process keeps all that it was given, whatever SLURM says.
    assert toys.jax.config.values["jax_cuda_visible_devices"] == "all"
    _, update, tx = toys.make_programs(toys.make_mesh(fsdp=8))
    state = states.init_state(toys.make_params()[1], tx, update.mesh)
    keeper = checkpoint.Checkpointer(folder, keep=2)
    done = hosts.agree(keeper.latest() or 0)
    if done:
        state, extras = keeper.restore(done, state)
        assert extras == {"ledger.json": b"%d" % done}
    for step in range(done + 1, STEPS + 1):
        if (index, str(step)) == (1, os.environ.get("DIE_AT")):
            os._exit(1)
        state, metrics = update.step(state, make_batches(step))
        assert float(metrics["learner/loss"]) != 0.0
        if step % 2 == 0:
            keeper.save(step, state, {"ledger.json": b"%d" % step})
            keeper.wait()
    leaves = states.to_host(state.params)
    print(hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest())
    if hosts.is_first():
        toys.np.savez(f"{folder}/params.npz", *leaves)
    hosts.meet("end")


def make_batches(step: int):
    """Two micro-batches of a step, the same in every process."""
    from tests.learn import toys

    rows = [toys.make_row(100 * step + i, live=2 + i) for i in range(8)]
    return toys.make_batches(rows, 4, length=32, loss_tokens=16)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
