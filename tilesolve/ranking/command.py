"""``tilesolve rank``: its options, and what is refused together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilesolve.system.command_options import full_dtype


def rank_variants(
    spec: Annotated[str, typer.Argument(help='Such as "mn-mk-kn" or "ij,jk->ik".')],
    sizes: Annotated[
        list[str], typer.Argument(help="Extents: m=72 n=72, or one number for all letters.")
    ],
    by: Annotated[str, typer.Option(help="The ranker: price, reuses or sets.")] = "price",
    variants: Annotated[int, typer.Option(min=1, help="How many at most.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw of variants.")] = 1,
    like: Annotated[
        str | None, typer.Option(help="polydl: the variants that PolyDL generates.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="Measure the first of them: a number, a share such as 5%, or all."),
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="A shipped name or a path; else the machine in force.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="f32, f64, c64, c128 or numpy's name.")] = "f64",
    threads: Annotated[
        int | None, typer.Option(help="Cores that share the work; else TILESOLVE_NUM_THREADS or 1.")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="Write the ranking here, plans included.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a line for each variant.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw what rankers pick; with --run.")] = None,
) -> None:
    """Rank variants of a plan by a rule, and measure the first ones.

    Example: $ tilesolve rank mn-mk-kn m=1024 n=1024 k=1024 --dtype f32 --variants 100 --run 5
    """
    from tilesolve.bench.results.outputs import Outputs
    from tilesolve.ranking.rankers import find_ranker
    from tilesolve.ranking.ranking import Top, count_top, rank
    from tilesolve.show.console_tables import progress_bar
    from tilesolve.system.files import write_atomically

    if plot is not None and run is None:
        raise typer.BadParameter("--plot draws what was measured: give --run, too")
    Outputs(as_json, csv, plot).check()
    find_ranker(by)
    top: Top = None
    if run is not None and run != "all":
        top = int(run) if run.isdecimal() else run
        count_top(top, variants)
    text = " ".join(sizes)
    found = rank(
        spec,
        int(text) if text.isdecimal() else text,
        machine,
        dtype=full_dtype(dtype),
        threads=threads,
        by=by,
        variants=variants,
        seed=seed,
        like=like,
    )
    if run is not None:
        with progress_bar("measuring") as tell:
            found = found.run(top, progress=tell)
    if as_json is not None:
        write_atomically(as_json, found.to_json() + "\n")
    if csv is not None:
        write_atomically(csv, found.to_csv())
    if plot is not None:
        found.draw(plot)
    typer.echo(str(found))
