"""``tilesolve plan``: contractions, convolution layers and nests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilesolve.system.command_options import full_dtype, list_ignored, read_spec

if TYPE_CHECKING:
    from tilesolve.machine.cluster import Cluster
    from tilesolve.nests.plan import NestPlan
    from tilesolve.nests.request import NestRequest
    from tilesolve.plans.plan import Plan

_OF_EXPRESSIONS = ("spec", "sizes", "machine", "expressions", "levels")
_OF_NESTS = (
    *("spec", "sizes", "nest", "fuse", "where", "mode", "route", "machine", "dtype", "threads"),
    *("as_json", "plot"),
)
_OF_NETWORKS = ("spec", "machine", "threads", "run", "plot")


def show_plan(
    context: typer.Context,
    spec: Annotated[
        str | None, typer.Argument(help='Such as "abcd-aebf-dfce" or "ij,jk->ik".')
    ] = None,
    sizes: Annotated[
        list[str] | None, typer.Argument(help="Extents: a=72 b=72, or one number for all letters.")
    ] = None,
    conv: Annotated[
        str | None,
        typer.Option(help='A convolution layer instead: "c=64 h=56 w=56 k=64 r=3 s=3 padding=1".'),
    ] = None,
    layout: Annotated[str, typer.Option(help="With --conv: NCHW or NHWC.")] = "NCHW",
    nest: Annotated[
        str | None, typer.Option(help='Statements instead: "out[y,x] = A[x,y] & B[y,x]".')
    ] = None,
    fuse: Annotated[
        bool, typer.Option("--fuse", help="With --nest: statements share tiles, as in a pipeline.")
    ] = False,
    where: Annotated[str, typer.Option(help='With --nest: a region, such as "j <= i".')] = "",
    mode: Annotated[
        str, typer.Option(help="With --nest: default, thesis, untiled or plain.")
    ] = "default",
    route: Annotated[
        str | None, typer.Option(help="With --nest: nest, contraction or transpose.")
    ] = None,
    epilogue: Annotated[str, typer.Option(help='What follows, such as "relu".')] = "",
    machine: Annotated[
        str | None, typer.Option(help="A shipped name or a path; else the machine in force.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="f16, bf16, f32, f64, c64, c128 or a name; else f64, of --conv f32."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            help="Cores that share the work, or of each of --workers; else TILESOLVE_NUM_THREADS "
            "or 1."
        ),
    ] = None,
    accumulate: Annotated[
        bool, typer.Option("--accumulate", help="Add to what the output holds.")
    ] = False,
    aligned_output: Annotated[
        bool, typer.Option("--aligned-output", help="C begins with a line; numpy's are amid one.")
    ] = False,
    strategy: Annotated[
        str, typer.Option(help="What finds the tiles: solver, composition or slicing.")
    ] = "solver",
    tries: Annotated[int, typer.Option(min=1, help="Run N candidates, keep the fastest.")] = 1,
    expressions: Annotated[
        bool, typer.Option("--expressions", help="Print the data-movement expressions instead.")
    ] = False,
    levels: Annotated[
        int | None,
        typer.Option(min=1, help="With --expressions: how many; else the machine's caches."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Such machines that share it over a network.")
    ] = None,
    worker_memory: Annotated[
        float | None, typer.Option(help="With --workers: bytes of each; else the cluster file's.")
    ] = None,
    network_bandwidth: Annotated[
        float | None, typer.Option(help="With --workers: bytes per second into one.")
    ] = None,
    cache: Annotated[bool, typer.Option(help="Use and keep solved plans.")] = True,
    run: Annotated[
        bool, typer.Option("--run", help="Of an ONNX file: run it, and show measured times.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw bytes and time per level into this file; of --nest its stages; of an ONNX "
            "file its graph, coloured by time."
        ),
    ] = None,
) -> None:
    """Solve for the tiles of a contraction, a convolution or a nest, and explain them.

    An ONNX file in the place of the spec is planned as a whole: a line for each of its works.

    Example: $ tilesolve plan abcd-aebf-dfce a=72 b=72 c=72 d=72 e=72 f=72 --plot plan.png
    Example: $ tilesolve plan --conv "c=64 h=56 w=56 k=64 r=3 s=3 padding=1" --layout NHWC
    Example: $ tilesolve plan resnet18.onnx --run
    Example: $ tilesolve plan mn-mk-kn 20000 --workers 8 --network-bandwidth 1.2e9
    Example: $ tilesolve plan --nest "out[y,x] = A[x,y] & B[y,x]" 4096 --dtype int32
    Example: $ tilesolve plan --nest "b[y,x] = A[y,x]; o[v,u] = b[v,u+1]" 99 --fuse --plot b.png
    """
    _check_options(context)
    words = list(sizes or ())
    if plot is not None:
        from tilesolve.show.pictures import check_picture

        check_picture(plot)
    if spec is not None and spec.endswith(".onnx"):
        typer.echo(_plan_network(spec, machine, threads, plot, run=run))
        return
    if nest is not None:
        text = " ".join([*([spec] if spec else []), *words])
        asked = _read_nest(nest, text, where, machine, dtype, threads, mode, route)
        typer.echo(_plan_nest(asked, plot, fuse=fuse, as_json=as_json))
        return
    from tilesolve.plans import plan as plan_module

    if expressions and spec is not None:
        _print_expressions(spec, machine, levels)
        return
    found: Plan | NestPlan
    if spec is not None:
        found = plan_module.plan(
            read_spec(spec),
            _read_extents(" ".join(words)),
            machine,
            dtype=full_dtype(dtype) or "float64",
            threads=threads if workers is None else None,
            accumulate=accumulate,
            epilogue=epilogue,
            strategy=strategy,
            tries=tries,
            aligned_output=aligned_output,
            workers=_read_workers(workers, worker_memory, network_bandwidth, threads),
            cache=cache,
        )
        report = str(found)
    else:
        from tilesolve.convolutions.command import plan_convolution, read_convolution

        layer = read_convolution(conv or "", layout, full_dtype(dtype) or "float32")
        found, report = plan_convolution(layer, machine, epilogue, threads, strategy, tries, cache)
    if plot is not None:
        from tilesolve.machine.device import find_device

        if find_device(machine):
            raise typer.BadParameter("--plot draws no plans for GPUs")
        _draw(found, plot)
    typer.echo(found.to_json() if as_json else report)


def _draw(found: Plan | NestPlan, plot: Path) -> None:
    """Draw a contraction, or the statements that a layer is."""
    from tilesolve.pipelines.pictures import draw_solved
    from tilesolve.plans.plan import Plan
    from tilesolve.show.drawings import draw_plan

    if isinstance(found, Plan):
        draw_plan(found, plot)
    else:
        draw_solved(found.solution, plot)


def _read_workers(
    workers: int | None, memory: float | None, bandwidth: float | None, threads: int | None
) -> Cluster | None:
    """Return the workers that options describe, the rest as the cluster file has it."""
    if workers is None:
        return None
    from tilesolve.machine.cluster import read_cluster

    found = read_cluster(workers)
    return replace(
        found,
        memory=found.memory if memory is None else int(memory),
        bandwidth=found.bandwidth if bandwidth is None else bandwidth,
        threads=found.threads if threads is None else threads,
    )


def _plan_network(
    file: str, machine: str | None, threads: int | None, plot: Path | None, *, run: bool
) -> str:
    """Return the report of a model whose shapes are known; if asked for, with measured times."""
    from tilesolve.networks.model import load

    model = load(file, machine=machine, threads=threads)
    measured = model.measure(model.draw_inputs()) if run else None
    if plot is not None:
        model.plot(plot, measured)
    return model.report(measured)


def _check_options(context: typer.Context) -> None:
    """Refuse options that would be ignored together."""
    given = context.params
    if (given["spec"] or "").endswith(".onnx"):
        if ignored := list_ignored(context, _OF_NETWORKS):
            raise typer.BadParameter(f"an ONNX file takes no {ignored}")
        return
    if given["run"]:
        raise typer.BadParameter("--run is of an ONNX file, which is missing")
    if given["expressions"] and (ignored := list_ignored(context, _OF_EXPRESSIONS)):
        raise typer.BadParameter(f"--expressions shows no plan, and takes no {ignored}")
    if given["levels"] is not None and not given["expressions"]:
        raise typer.BadParameter("--levels counts the levels of --expressions, which is missing")
    if given["conv"] is None and given["layout"] != "NCHW":
        raise typer.BadParameter("--layout is of --conv, which is missing")
    if given["nest"] is not None:
        if ignored := list_ignored(context, _OF_NESTS):
            raise typer.BadParameter(f"--nest takes no {ignored}")
        return
    for name, default in (("where", ""), ("mode", "default"), ("route", None), ("fuse", False)):
        if given[name] != default:
            raise typer.BadParameter(f"--{name} is of --nest, which is missing")
    if (given["spec"] is None) == (given["conv"] is None):
        raise typer.BadParameter("give either a spec, --conv or --nest")
    if given["workers"] is None:
        for name in ("worker_memory", "network_bandwidth"):
            if given[name] is not None:
                option = name.replace("_", "-")
                raise typer.BadParameter(f"--{option} is of --workers, which is missing")
    elif given["conv"] is not None:
        raise typer.BadParameter("--conv takes no --workers: layers map over a batch")
    if given["conv"] is not None and given["accumulate"]:
        raise typer.BadParameter("--conv takes no --accumulate")
    if given["conv"] is not None and given["aligned_output"]:
        raise typer.BadParameter("--conv takes no --aligned-output: results of layers are aligned")


def _read_extents(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _read_nest(
    statement: str,
    sizes: str,
    where: str,
    machine: str | None,
    dtype: str | None,
    threads: int | None,
    mode: str,
    route: str | None,
) -> NestRequest:
    """Return what is asked of statements."""
    from tilesolve.machine.detect import default_threads
    from tilesolve.machine.model import Machine
    from tilesolve.nests.arguments import read_computation
    from tilesolve.nests.request import NestRequest
    from tilesolve.system.checks import check_threads

    computation = read_computation(
        statement, _read_extents(sizes), full_dtype(dtype), where or (), ()
    )
    return NestRequest(
        computation,
        Machine.load(machine),
        default_threads() if threads is None else check_threads(threads),
        mode,  # type: ignore[arg-type]  # what is none is refused there
        route,  # type: ignore[arg-type]
    )


def _plan_nest(asked: NestRequest, plot: Path | None, *, fuse: bool, as_json: bool) -> str:
    """Return the report of statements, or its JSON; draw them if a picture is asked for."""
    from tilesolve.nests.plan import NestPlan, keep_plan
    from tilesolve.pipelines.pictures import draw_solved
    from tilesolve.pipelines.plan import PipelinePlan

    found = keep_plan(PipelinePlan if fuse else NestPlan, asked, cache=True)
    if plot is not None:
        draw_solved(found.solution, plot)
    return found.to_json() if as_json else str(found)


def _print_expressions(spec: str, machine: str | None, levels: int | None) -> None:
    from tilesolve.machine.model import Machine
    from tilesolve.model.formulas import listing, output_stationary_order

    parsed, count = read_spec(spec), levels or len(Machine.load(machine).caches)
    typer.echo(listing(parsed, [output_stationary_order(parsed)] * count))
