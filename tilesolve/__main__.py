"""The ``tilesolve`` command, by that name or as ``python -m tilesolve``."""

from __future__ import annotations

import sys

from tilesolve.system.interrupts import INTERRUPTED, ignore_late_ones, unwind_on_terminate


def main() -> None:
    """Run the command; interrupts end it quietly from the first of its imports on.

    Examples
    --------
    $ tilesolve doctor
    """
    try:
        unwind_on_terminate()
        from tilesolve.cli import app  # takes a while

        app(prog_name="tilesolve")
    except KeyboardInterrupt:
        exec("")  # see `tilesolve.cli`
        sys.exit(INTERRUPTED)
    finally:
        ignore_late_ones()


if __name__ == "__main__":
    main()
