"""One line on the terminal that tells how far a long piece of work has come."""

import sys
import time

from openwebrl_jax.core import metrics

_EVERY_S = 5.0


class Bar:
    """Counts ticks: `demonstrations 120/400  success 0.93  11.2/s  25 s left`."""

    def __init__(self, stage: str, total: int):
        self._stage, self._total = stage, total
        self._done = self._successes = 0
        self._began_s = self._told_s = time.monotonic()

    def tick(self, is_success: bool) -> None:
        """One more is done."""
        self._done += 1
        self._successes += is_success
        if time.monotonic() - self._told_s > _EVERY_S:
            self._tell()

    def close(self) -> None:
        """Tells where it ended."""
        self._tell()

    def _tell(self) -> None:
        self._told_s = time.monotonic()
        rate = self._done / max(self._told_s - self._began_s, 1e-9)
        left = metrics.duration((self._total - self._done) / max(rate, 1e-9))
        print(
            f"{self._stage} {self._done}/{self._total}  "
            f"success {metrics.share(self._successes, self._done):.2f}  "
            f"{rate:.1f}/s  {left} left",
            file=sys.stdout,
            flush=True,
        )
