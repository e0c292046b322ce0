"""``python -m tilesolve`` is the ``tilesolve`` command."""

from tilesolve.cli import app

app(prog_name="tilesolve")
