"""How every command here begins and fails: flags, then one clear line."""

import logging as stdlib_logging
import sys
from collections.abc import Callable

from absl import app, flags, logging

from openwebrl_jax.core import checks
from openwebrl_jax.rollout.ledger import StallError, StarvationError
from openwebrl_jax.rollout.score import JudgeDriftError


def run(main: Callable[[], None]) -> None:
    """Parses flags and runs `main`; what ends it is told in one line.

    Exit code 2 = refused before anything started; 3 = training went nowhere.
    """

    def guarded(argv: list[str]) -> None:
        if argv[1:]:
            sys.exit(f"refused: got the stray argument {argv[1]!r}; see --help")
        logging.set_verbosity(logging.WARNING)
        stdlib_logging.getLogger("orbax").setLevel(stdlib_logging.ERROR)
        try:
            if getattr(flags.FLAGS, "workdir", None):
                flags.FLAGS.workdir = checks.home(flags.FLAGS.workdir)
            main()
        except (ValueError, FileNotFoundError, NotADirectoryError) as error:
            print(f"refused: {_innermost(error)}", file=sys.stderr)
            sys.exit(2)
        except (StallError, StarvationError, JudgeDriftError) as error:
            print(f"stopped: {_innermost(error)}", file=sys.stderr)
            sys.exit(3)

    app.run(guarded, flags_parser=_parse)


def _innermost(error: BaseException) -> BaseException:
    """What was raised at first: Ray wraps it once for each actor that it passes."""
    while isinstance(cause := getattr(error, "cause", None), BaseException):
        error = cause
    return error


def _parse(argv: list[str]) -> list[str]:
    """absl's own parsing; whatever is wrong with a flag or a config is one line."""
    try:
        rest = flags.FLAGS(argv)
        for name in flags.FLAGS:  # a config file that is not there says so when asked
            getattr(flags.FLAGS[name].value, "seed", None)
        return rest
    except (
        flags.Error,
        AttributeError,
        KeyError,
        OSError,
        TypeError,
        ValueError,
    ) as error:
        # A config file that raises comes with its traceback, of which the end tells.
        lines = str(error).strip().splitlines()
        told = lines[-1] if "Traceback" in str(error) else " ".join(lines)
        # Some show their text as Python would write it.
        line = told.replace("\\n", " ").replace("\\'", "'")
        print(f"refused: {' '.join(line.split())}", file=sys.stderr)
        sys.exit(2)
