"""``tilesolve bench``: its options, and what is refused together."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilesolve.system.command_options import full_dtype, list_ignored, rebuild_command

_OF_NESTS = (
    *("suite", "case", "peers", "threads", "repeat", "seconds", "limit", "machine"),
    *("as_json", "csv", "page"),
)
"""The options that a sweep of nests takes."""

_OF_LAYERS = (
    *("suite", "case", "peers", "dtype", "threads", "repeat", "seconds", "limit", "machine"),
    *("as_json", "csv", "page"),
)
"""The options that a sweep of layers takes."""


_WITHIN = ("suite", "machine", "threads", "repeat", "within")
"""The options that go with ``--within``."""


class Study(StrEnum):
    """What ``--study`` looks at."""

    TILES = "tiles"
    MISSES = "misses"
    RANKING = "ranking"
    TILINGS = "tilings"
    TRIES = "tries"
    PRICE = "price"


def bench(
    context: typer.Context,
    suite: Annotated[
        str,
        typer.Argument(
            help="A suite, the path of a suite file or of an ONNX model, random:N:SEED for drawn "
            "contractions, or statements:N:SEED for drawn nests; "
            "for a study also a case, for --study price several suites with commas between."
        ),
    ] = "",
    case: Annotated[
        list[str] | None,
        typer.Option(
            help="A problem's name, or a pattern; may be repeated. Of layers also a network's."
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            help="Names with commas between, none, or module:function for your own; else all."
        ),
    ] = None,
    problems: Annotated[
        bool,
        typer.Option(
            "--problems", help="Specs over padded inputs, of a suite that also has layers."
        ),
    ] = False,
    dtype: Annotated[
        str | None, typer.Option(help="f32, f64, c64, c128 or numpy's name; else the suite's.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of each contender.")] = 1,
    batch: Annotated[
        int, typer.Option(help="Processes side by side, each with the whole problem.")
    ] = 1,
    repeat: Annotated[int, typer.Option(help="Rounds at most; the median counts.")] = 5,
    seconds: Annotated[
        float, typer.Option(help="Of runs after which a case gets no third round, or further one.")
    ] = 30.0,
    limit: Annotated[
        float, typer.Option(help="Seconds after which a contender that hangs is stopped.")
    ] = 120.0,
    machine: Annotated[
        str | None, typer.Option(help="A shipped name or a path; else the machine in force.")
    ] = None,
    as_json: Annotated[
        Path | None,
        typer.Option("--json", help="Keep results here as they come, and go on from them."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a line per case and contender.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw speeds and roofline.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write all of it as one HTML file, with pictures.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Write tables to the page of this CPU: a file, or a folder of pages."),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Show what changed since these results.")
    ] = None,
    study: Annotated[
        Study | None, typer.Option(help="Look at the model instead of at peers.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="An ONNX file as a whole, not layer by layer.")
    ] = False,
    within: Annotated[
        bool,
        typer.Option(
            "--within", help="The layers of an ONNX file in the network, alone and flushed."
        ),
    ] = False,
    plans: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Random plans of a case that --study tiles runs, else 30; variants of a case that "
            "--study ranking does, else 60; random tiles of a nest for --study tilings, else 30; "
            "candidates that --study tries tries, else 5; plans of each machine for "
            "--study price, else 6.",
        ),
    ] = None,
) -> None:
    """Measure how fast plans run beside peers; exit with 1 if a plan's result is wrong.

    Suites of convolution layers, and ONNX models, are measured as layers, in both layouts and with
    bias and ReLU, beside libraries that have them. Suites of nests are measured beside NumPy,
    numba and Halide, and beside the same code without tiles. `pipelines` are NumPy functions, which
    are measured beside themselves, numba and Halide, and beside ours one stage after another.
    `gpu-decisions` compares tiles for a GPU, such as --machine a100, with NVIDIA's choice by its
    estimator, which needs no GPU.
    `networks` are whole models, and so is an ONNX file with --whole, beside ONNX Runtime and
    OpenVINO.

    A study looks at the model instead: `--study tiles` runs the solver's plan of a case, its
    runners-up and random ones; `--study ranking` runs its variants and says how well rankers order
    them; `--study tilings` does so with random tiles of the nests of a suite; `--study tries` runs
    the plan that tries keep beside the one without; `--study price` fits the terms of the price to
    times, and compares the detected and the calibrated machine; `--study misses` simulates the
    caches of a machine.

    Example: $ tilesolve bench tccg --peers numpy,tblis --json tccg.json --html tccg.html
    Example: $ tilesolve bench sconv --case ResNet-50 --peers torch,im2col
    """
    _check_study(context, study)
    if study is Study.MISSES:
        from tilesolve.studies.registry import study_misses

        study_misses(suite, machine)
        return
    if study is Study.PRICE and not suite:
        from tilesolve.studies.priced_plans import SUITES

        suite = SUITES
    if not suite:
        raise typer.BadParameter("name a suite, such as tccg")
    if within or suite == "gpu-decisions":
        show = _show_layers_within if within else _show_gpu_decisions
        show(context, suite, machine, threads, repeat)
        return
    from tilesolve.bench.layers import has_layers
    from tilesolve.bench.nests import PIPELINES, has_nests
    from tilesolve.bench.networks import NETWORKS
    from tilesolve.bench.procedure import Procedure
    from tilesolve.bench.results.outputs import Job, Outputs
    from tilesolve.contractions.statements.nest_suites import is_drawn

    job = Job(
        suite,
        tuple(case or ()),
        full_dtype(dtype),
        machine,
        Procedure(threads, batch, repeat, limit, seconds),
        Outputs(as_json, csv, plot, html, page, compare),
        rebuild_command(context),
    )
    if whole and not suite.endswith(".onnx"):
        raise typer.BadParameter(f"--whole is of an ONNX file, not of {suite}")
    whole = whole or suite == NETWORKS
    nests, layers = has_nests(suite), has_layers(suite) and not (problems or whole)
    if study is Study.TILINGS and not nests:
        raise typer.BadParameter(f"--study tilings takes a suite of nests, not {suite}")
    if nests and study not in (Study.TILINGS, Study.PRICE):
        _refuse(context, _OF_NESTS, "nests")
    if study is not None:
        from tilesolve.studies.method import carry_out
        from tilesolve.studies.registry import METHODS

        right = carry_out(METHODS[study], job, plans)
    else:
        if layers:
            _refuse(context, _OF_LAYERS, "layers")
        elif suite == PIPELINES or whole:
            _refuse(context, (*_OF_NESTS, "whole"), "pipelines" if not whole else "networks")
        from tilesolve.bench.run import suite_sweep as of

        of_nests = of.STATEMENTS if is_drawn(suite) else of.NESTS
        kind = of_nests if nests else of.LAYERS if layers else of.CONTRACTIONS
        if suite == PIPELINES:
            kind = of.PIPELINES
        elif whole:
            kind = of.WHOLE
        right = of.sweep_suite(kind, job, peers)
    raise typer.Exit(0 if right else 1)


def _show_layers_within(
    context: typer.Context, file: str, machine: str | None, threads: int, repeat: int
) -> None:
    """Print the times of a model's layers where they run."""
    if ignored := list_ignored(context, _WITHIN):
        raise typer.BadParameter(f"--within takes no {ignored}")
    if not file.endswith(".onnx"):
        raise typer.BadParameter(f"--within is of an ONNX file, not of {file}")
    from tilesolve.bench.run.network_layers import measure_layers, report_layers
    from tilesolve.machine.model import Machine

    found, model = measure_layers(file, Machine.load(machine), threads, repeat)
    typer.echo("\n".join([model.count, *report_layers(found)]))


def _show_gpu_decisions(context: typer.Context, suite: str, machine: str | None, *_: int) -> None:
    """Print our tiles for a GPU beside NVIDIA's, by its estimator."""
    del suite
    if ignored := list_ignored(context, ("suite", "machine")):
        raise typer.BadParameter(f"gpu-decisions takes --machine alone, no {ignored}")
    from tilesolve.bench.gpu_decisions import SEED, SHAPES, decide, draw_shapes, write_decisions
    from tilesolve.kernels.gpu.targets import Nvptx
    from tilesolve.machine.device import Device

    device = Device.load(machine or "a100")
    for grouped in (False, True)[: 1 + Nvptx(device.capability).has("groups")]:
        found = decide(device, draw_shapes(SHAPES, SEED), SEED, grouped=grouped)
        typer.echo("\n".join(write_decisions(device, found, grouped=grouped)))


def _refuse(context: typer.Context, taken: Sequence[str], what: str) -> None:
    """Refuse options that a sweep of such cases would ignore."""
    if ignored := list_ignored(context, taken):
        raise typer.BadParameter(f"a sweep of {what} takes no {ignored}")


def _check_study(context: typer.Context, study: Study | None) -> None:
    """Refuse options that a study, or a sweep, would ignore."""
    if study is None:
        if context.params["plans"] is not None:
            raise typer.BadParameter("--plans counts those of --study, which is missing")
        return
    taken = ["suite", "machine", "study"]
    told = "takes --machine alone: no --case, no file,"
    if study is not Study.MISSES:
        taken += ["case", "dtype", "threads", "repeat", "seconds", "plans", "as_json", "csv"]
        told = "takes, of files, --json and --csv;"
    if study is Study.TILINGS:
        taken.remove("dtype")
    if study in (Study.RANKING, Study.TILINGS, Study.TRIES, Study.PRICE):
        taken += ["page"]
        told = "takes, of files, --json, --csv and --page;"
    if ignored := list_ignored(context, taken):
        raise typer.BadParameter(f"--study {study} {told} no {ignored}")
