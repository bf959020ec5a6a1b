"""How every command here begins and fails: flags, then one clear line."""

import logging as stdlib_logging
import sys
from collections.abc import Callable

from absl import app, logging


def run(main: Callable[[], None]) -> None:
    """Parses flags and runs `main`; a refusal (ValueError) is one line, exit code 2."""

    def guarded(argv: list[str]) -> None:
        if argv[1:]:
            sys.exit(f"refused: got the stray argument {argv[1]!r}; see --help")
        logging.set_verbosity(logging.WARNING)
        stdlib_logging.getLogger("orbax").setLevel(stdlib_logging.ERROR)
        try:
            main()
        except (ValueError, FileNotFoundError) as error:
            told = getattr(error, "cause", error)  # Ray wraps what an actor raised
            print(f"refused: {told}", file=sys.stderr)
            sys.exit(2)

    app.run(guarded, flags_parser=_parse)


def _parse(argv: list[str]) -> list[str]:
    """absl's own parsing; what a config file says of a wrong key is one line too."""
    try:
        return app.parse_flags_with_usage(argv)
    except (AttributeError, TypeError, ValueError) as error:
        print(f"refused: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
