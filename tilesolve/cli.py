"""The ``tilesolve`` command. Each subcommand calls into the module that does the work."""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from tilesolve.bench_command import bench
from tilesolve.contractions.errors import TilesolveError, TilesolveWarning
from tilesolve.plan_command import show_plan
from tilesolve.ranking.command import rank_variants
from tilesolve.system.command_options import full_dtype
from tilesolve.system.interrupts import INTERRUPTED

FAILED = 2
"""Exit status after an error that has a message."""

_UsageError: Any = typer.BadParameter.__base__
"""What arguments that a command does not take raise."""


def _say_error(message: str) -> None:
    """Print an error as one line, whatever the names in it."""
    typer.echo(f"error: {' '.join(message.split())}", err=True)


class _Commands(TyperGroup):
    """The subcommands, with errors and warnings as one line each instead of a traceback."""

    def main(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - typer's own
        try:
            status = super().main(*arguments, **{**options, "standalone_mode": False})
        except _UsageError as error:
            if message := error.format_message():  # none with the help itself
                _say_error(message)
            sys.exit(FAILED)
        except OSError as error:
            from tilesolve.system.files import describe_error

            _say_error(describe_error(error))
            with suppress(OSError):  # a full standard output would fail again at the very end
                sys.stdout.close()
            sys.exit(FAILED)
        sys.exit(status)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own, which differs by version
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a letter that a pipe cannot take is no error
                stream.reconfigure(errors="backslashreplace")
        with warnings.catch_warnings():
            usual = warnings.showwarning

            def show(
                message: Warning | str,
                category: type[Warning],
                filename: str,
                lineno: int,
                file: TextIO | None = None,
                line: str | None = None,
            ) -> None:
                if issubclass(category, TilesolveWarning):
                    typer.echo(f"warning: {message}", err=True)
                else:
                    usual(message, category, filename, lineno, file, line)

            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except TilesolveError as error:
                _say_error(str(error))
                raise typer.Exit(FAILED) from None
            except KeyboardInterrupt:
                # CPython notes an interrupt that leaves an `exec` of text, such as dataclasses
                # and numba use, and under `python -m` ends by the signal even if it was handled.
                # It forgets that with the next `exec`.
                exec("")
                raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    help="Solve for the tile sizes of tensor contractions and convolutions.",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from tilesolve.system.version import __version__

        typer.echo(f"tilesolve {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command("doctor")
def _doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Show what is in force and what is missing; exit with 1 if something needed is."""
    from tilesolve.show.console_tables import console
    from tilesolve.show.doctor import diagnose, print_diagnosis

    found = diagnose()
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        print_diagnosis(found, console())
    raise typer.Exit(0 if found.healthy else 1)


@app.command()
def calibrate(
    quick: Annotated[
        bool, typer.Option("--quick", help="Take 20 seconds at most, not 3 minutes.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures and all samples as JSON.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw bandwidth against block size into this file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Save here instead of where plans look for it.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Measure workers instead: the address of a Dask scheduler, or local."),
    ] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Measure the GPU instead, into the file of --output.")
    ] = False,
) -> None:
    """Measure this computer's bandwidths and peaks, and save them for plans.

    Example: $ tilesolve calibrate --quick --plot curve.png
    Example: $ tilesolve calibrate --cluster tcp://10.0.0.1:8786
    Example: $ tilesolve calibrate --gpu --output mine.toml
    """
    if gpu:
        if quick or as_json or output is None or plot is not None or cluster is not None:
            raise typer.BadParameter("--gpu takes --output, and nothing else")
        _calibrate_gpu(output)
        return
    if cluster is not None:
        if quick or plot is not None:
            raise typer.BadParameter("--cluster takes neither --quick nor --plot")
        _calibrate_cluster(cluster, output, as_json=as_json)
        return
    from tilesolve.calibration.calibrate import calibrate as measure
    from tilesolve.calibration.calibrate import keep_others
    from tilesolve.machine.file import save_machine
    from tilesolve.machine.places import check_place, machine_file
    from tilesolve.show.calibration_tables import list_calibration_tables
    from tilesolve.show.console_tables import console, progress_bar
    from tilesolve.show.pictures import check_picture
    from tilesolve.system.files import hold_lock

    target = output or machine_file()
    check_place(target)
    if plot is not None:
        check_picture(plot)
    with hold_lock(target):
        try:
            with progress_bar("calibrating") as report:
                found = measure(quick=quick, progress=report)
        except KeyboardInterrupt:
            typer.echo(f"interrupted: {target} is as it was", err=True)
            raise
        save_machine(target, keep_others(found.machine, target).to_toml())
    if plot is not None:
        from tilesolve.show.drawings import draw_calibration

        draw_calibration(found, plot)
    if as_json:
        typer.echo(json.dumps({"file": str(target)} | found.to_dict(), indent=2))
        return
    console().print(*list_calibration_tables(found), *found.notes, sep="\n")
    saved = [f"saved in {target}", *([f"picture in {plot}"] if plot else [])]
    console().print(*saved, f"took {found.elapsed:.0f} s", sep="\n")


def _calibrate_cluster(address: str, output: Path | None, *, as_json: bool) -> None:
    """Measure workers and the network between them, and save them."""
    from dataclasses import asdict

    from tilesolve.distributed.measure import measure_cluster
    from tilesolve.machine.cluster import cluster_file
    from tilesolve.machine.places import check_place
    from tilesolve.system.units import format_size

    target = output or cluster_file()
    check_place(target)
    found = measure_cluster(address)
    found.save(target)
    if as_json:
        typer.echo(json.dumps({"file": str(target), **asdict(found)}, indent=2))
        return
    typer.echo(
        f"{found.workers} workers of {found.threads} threads and {format_size(found.memory)}, "
        f"{format_size(int(found.bandwidth))}/s between two\nsaved in {target}"
    )


def _calibrate_gpu(target: Path) -> None:
    """Measure the GPU of this computer, and save it as a device."""
    from tilesolve.calibration.gpu import calibrate_gpu
    from tilesolve.gpu.card import Card
    from tilesolve.system.files import check_writable, write_atomically

    check_writable(target)
    found = calibrate_gpu(Card())
    write_atomically(target, found.to_toml(), mode=0o644)
    rates = ", ".join(f"{one.name} {one.bandwidth:.3g} B/s" for one in found.levels)
    typer.echo(f"{found.name}: {rates}\nsaved in {target}")


@app.command("kernels")
def _kernels(
    dtype: Annotated[
        list[str] | None, typer.Option(help="What to measure; may be repeated. Else all dtypes.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw heat maps into this file.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="The machine file to add to, instead of this computer's.")
    ] = None,
) -> None:
    """Measure all microkernels, so that plans choose their register tile by shape.

    They become part of the machine file that `tilesolve calibrate` wrote.

    Example: $ tilesolve kernels --dtype f64 --plot kernels.png
    """
    from dataclasses import asdict

    from tilesolve.calibration.microkernels import measure_catalogues
    from tilesolve.contractions.errors import MachineError
    from tilesolve.contractions.problem import DTYPES, dtype_name
    from tilesolve.machine.file import save_machine
    from tilesolve.machine.model import Machine
    from tilesolve.machine.places import check_place, machine_file
    from tilesolve.show.calibration_tables import catalogue_table
    from tilesolve.show.console_tables import console, progress_bar
    from tilesolve.show.pictures import check_picture
    from tilesolve.system.files import hold_lock

    target = output or machine_file()
    if not target.is_file():
        raise MachineError(f"there is no machine file {target}: run 'tilesolve calibrate' first")
    check_place(target)
    if plot is not None:
        check_picture(plot)
    wanted = [dtype_name(full_dtype(name)) for name in dtype or DTYPES]
    with hold_lock(target):
        with progress_bar("measuring") as report:
            machine = measure_catalogues(Machine.load(target), wanted, report)
        save_machine(target, machine.to_toml())
    if plot is not None:
        from tilesolve.show.drawings import draw_catalogues

        draw_catalogues(machine, plot)
    found = [catalogue for catalogue in machine.catalogues if catalogue.dtype in wanted]
    if as_json:
        catalogues = [asdict(catalogue) for catalogue in found]
        typer.echo(json.dumps({"file": str(target), "catalogues": catalogues}, indent=2))
        return
    console().print(*map(catalogue_table, found), f"saved in {target}", sep="\n")


@app.command("machine")
def _machine(
    name: Annotated[
        str | None, typer.Argument(help="A shipped name or a path; else the one in force.")
    ] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print it as a machine file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show the machine that plans are made for: levels, vector units, peaks and costs.

    Example: $ tilesolve machine i7-6700k
    """
    from tilesolve.machine.model import Machine

    if toml and as_json:
        raise typer.BadParameter("--toml and --json are two ways to print it: give one of them")
    found = Machine.load(name)
    if toml:
        typer.echo(found.to_toml(), nl=False)
        return
    from tilesolve.show.console_tables import console
    from tilesolve.show.machine_tables import list_machine_tables, machine_dict

    if as_json:
        typer.echo(json.dumps(machine_dict(found), indent=2))
        return
    console().print(*list_machine_tables(found))


@app.command("suites")
def _suites(
    name: Annotated[
        str | None,
        typer.Argument(help="A suite's name, or the path of a suite file or of an ONNX model."),
    ] = None,
) -> None:
    """List the suites of problems and of layers, or what is in one."""
    from tilesolve.bench.layers import has_layers, list_layers
    from tilesolve.contractions.layer_suites import list_layer_suites
    from tilesolve.contractions.suites import list_suites as names
    from tilesolve.contractions.suites import suite
    from tilesolve.show.console_tables import console, layer_table, suite_table
    from tilesolve.system.tables import Table

    if name is not None:
        if name in names() or not has_layers(name):
            console().print(suite_table(name, suite(name)))
        if has_layers(name):
            console().print(layer_table(name, list_layers(name)))
        return
    rows = [(found, str(len(suite(found)))) for found in names()]
    console().print(Table("", {"suite": "left", "problems": "right"}, rows))
    counts = [(found, list_layers(found)) for found in list_layer_suites()]
    columns = {"suite of layers": "left", "layers": "right", "different": "right"}
    sums = [
        (found, sum(row.times for row in layers), len({row.convolution for row in layers}))
        for found, layers in counts
    ]
    console().print(Table("", columns, [(name, *map(str, found)) for name, *found in sums]))


@app.command("cache")
def _cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove all kept plans and compiled kernels.")
    ] = False,
) -> None:
    """Show what is kept, where, and its bound; or remove solved plans and compiled code."""
    from tilesolve.caches import clear_cache, count_code
    from tilesolve.plans import cache as plan_cache
    from tilesolve.system.cache_bound import cache_limit
    from tilesolve.system.files import cache_dir
    from tilesolve.system.units import format_count, format_size

    if clear:
        done = clear_cache()
        plans = format_count(done.plans, "plan")
        files = format_count(done.kernels + done.functions, "file")
        typer.echo(f"removed {plans} and {files} of compiled code from {cache_dir()}")
        return
    found = plan_cache.count_plans()
    state = "in use" if plan_cache.is_enabled() else "switched off by TILESOLVE_CACHE"
    count, kept = format_count(found["disk"], "plan"), found["bytes"]
    typer.echo(f"{count} of {kept} bytes in {plan_cache.plan_folder()}, {state}")
    code, size = count_code()
    typer.echo(f"{format_count(code, 'file')} of compiled code, {format_size(size)}")
    total, limit = format_size(size + kept), format_size(cache_limit())
    typer.echo(f"{total} in all, of {limit} at most; what was not used for longest goes first")


@app.command("warm")
def _warm(
    dtype: Annotated[
        list[str] | None, typer.Option(help="What to compile for; may be repeated. Else f32, f64.")
    ] = None,
) -> None:
    """Compile now what calls need, as in the build of a container, so that none has to wait.

    Example: $ tilesolve warm --dtype f32
    """
    from tilesolve.caches import warm_cache
    from tilesolve.contractions.problem import dtype_name
    from tilesolve.show.console_tables import progress_bar
    from tilesolve.system.trust import kept_folder

    wanted = [dtype_name(full_dtype(name)) for name in dtype or ("f32", "f64")]
    with progress_bar("compiling") as report:
        warm_cache(wanted, report)
    typer.echo(f"{', '.join(wanted)} compiled in {kept_folder('code').parent}")


app.command("plan")(show_plan)
app.command("rank")(rank_variants)
app.command("bench")(bench)
