"""A sweep of layers as tables: layers with the worst first, networks, and means over all layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite

from tilesolve.bench.contenders import ALIGNED, IM2COL, LAYOUTS, OURS, OWN, split_name
from tilesolve.bench.layers import LayerCase
from tilesolve.bench.results.report import (
    Report,
    describe_suite,
    fill_row,
    format_figure,
    format_speed,
    geometric_mean,
    list_contenders,
    sort_cases,
)
from tilesolve.bench.results.sweeps import LayerSweep, Result
from tilesolve.system.tables import Table
from tilesolve.system.units import format_count, format_duration, format_volume

LAYER_UNITS = (
    "speeds in GFLOP/s; convolution, bias and ReLU, padding inside, weights prepared; ratios are "
    "of the fastest of ours to the fastest of others, in one layout or in any; aligned: ours with "
    "arrays that begin with lines; packed: in each call; packing: its share of a call's time, by a "
    "clock read before and after each copy in runs of their own, and the share that the price "
    "gives it"
)
"""What stands below the table of layers."""

MODEL_COLUMNS = {
    "network": "left",
    **dict.fromkeys(("layers", "GFLOP", OURS, ALIGNED, "best peers", "im2col"), "right"),
    **dict.fromkeys(("to best peers", "to im2col", "ahead"), "right"),
    **dict.fromkeys(("packing", "predicted packing"), "right"),
}
"""Headers of the table of networks."""


def report_layers(sweep: LayerSweep) -> Report:
    """Return what there is to show of a sweep of layers."""
    models = Table("", MODEL_COLUMNS, list_model_rows(sweep))
    layers = Table("", list_layer_columns(sweep), list_layer_rows(sweep))
    heading, means = f"layers of {describe_suite(sweep)}", list_layer_means(sweep)
    return Report.of_sweep(sweep, heading, LAYER_UNITS, means, models, layers)


def list_layer_columns(sweep: LayerSweep) -> dict[str, str]:
    """Return the headers of the table of layers, each with the side that its cells stand on."""
    ratios = ("to best peer", *(f"in {layout}" for layout in LAYOUTS), "to im2col", "to aligned")
    figures = (
        *("times", "GFLOP", "roofline", *ratios, "predicted", "bound by", "packed"),
        *("packing", "predicted packing", "planning"),
        *list_contenders(sweep),
    )
    return {"layer": "left"} | dict.fromkeys(figures, "right")


def list_layer_rows(sweep: LayerSweep) -> list[tuple[str, ...]]:
    """Return the cells of the table of layers, worst first."""
    names, columns = list_contenders(sweep), list_layer_columns(sweep)
    found = []
    for case in sort_cases(sweep):
        layer, figures = _layer_of(case), case.plan
        head = (case.name, str(layer.times), f"{layer.flops / 1e9:.3g}")
        if case.skipped:
            found.append(fill_row((*head, "skipped"), columns))
            continue
        entry = case.entries.get(case.mine)
        planning = entry.preparation if entry else None
        known = isfinite(figures.roofline)
        found.append(
            (
                *head,
                format_duration(figures.roofline) if known else "-",
                format_figure(case.ratio()),
                *(format_figure(case.ratio(layout=layout)) for layout in LAYOUTS),
                *(format_figure(case.ratio(library)) for library in (IM2COL, ALIGNED)),
                format_figure(figures.predicted / case.ours),
                figures.bottleneck or "-",
                format_volume(figures.packed) if known else "-",
                format_figure(figures.packing, "{:.1%}"),
                format_figure(figures.predicted_packing, "{:.1%}"),
                "-" if planning is None else format_duration(planning),
                *(format_speed(case, name) for name in names),
            )
        )
    return found


def list_model_rows(sweep: LayerSweep) -> list[tuple[str, ...]]:
    """Return the cells of the table of networks: the time of all their layers together.

    Layers that ours, aligned, im2col or all peers have no result for count for none of them, and
    the number of layers says so.
    """
    models = dict.fromkeys(model for case in sweep.cases for model, _ in _layer_of(case).uses)
    return [_sum_model(model, sweep) for model in models]


def _sum_model(model: str, sweep: LayerSweep) -> tuple[str, ...]:
    every = [(case, dict(_layer_of(case).uses)) for case in sweep.cases]
    layers = [(case, uses[model]) for case, uses in every if model in uses]
    asked = [OURS, *_list_peers(sweep)]
    measured = [
        (case, times)
        for case, times in layers
        if all(isfinite(_time_of(case, library)) for library in asked)
    ]
    there, total = (sum(times for _, times in rows) for rows in (measured, layers))
    count = str(total) if there == total else f"{there} of {total}"
    if not measured:
        return (model, count, *["-"] * (len(MODEL_COLUMNS) - 2))
    flops = sum(times * case.case.flops for case, times in measured)
    spent = {
        library: sum(times * _time_of(case, library) for case, times in measured)
        for library in asked
    }
    aligned, peers, copies = (spent.get(library, 0.0) for library in (ALIGNED, "", IM2COL))
    ahead = sum(times for case, times in measured if case.ratio() >= 1)
    return (
        model,
        count,
        f"{flops / 1e9:.2f}",
        format_duration(spent[OURS]),
        *(format_duration(other) if other else "-" for other in (aligned, peers, copies)),
        f"{peers / spent[OURS]:.2f}" if peers else "-",
        f"{copies / spent[OURS]:.2f}" if copies else "-",
        f"{ahead / there:.0%}" if peers else "-",
        *_share_of_packing(measured),
    )


def _share_of_packing(layers: Sequence[tuple[Result, int]]) -> list[str]:
    """Return packing's share of the time of our plans for layers: measured, and predicted."""
    spent, packed = [0.0, 0.0], [0.0, 0.0]
    for case, times in layers:
        figures = case.plan
        if isfinite(figures.packing):  # statements pack nothing
            shares = figures.packing, figures.predicted_packing
            for at, seconds in enumerate((case.ours, figures.predicted)):
                spent[at] += times * seconds
                packed[at] += times * seconds * shares[at]
    if not spent[0]:
        return ["-", "-"]
    return [f"{one / whole:.1%}" for one, whole in zip(packed, spent, strict=True)]


def _list_peers(sweep: LayerSweep) -> list[str]:
    """Return "" where there are peers, and which of aligned and im2col take part."""
    libraries = {split_name(name)[0] for name in list_contenders(sweep)}
    return [
        *([""] if libraries - {*OWN} else []),
        *(library for library in (ALIGNED, IM2COL) if library in libraries),
    ]


def _time_of(case: Result, library: str) -> float:
    """Return the best seconds of a library, or of all peers for an empty name."""
    return case.seconds(case.fastest(library))


def list_layer_means(sweep: LayerSweep) -> dict[str, str]:
    """Return means over all layers, each counted as often as networks have it, by what is meant."""
    total = sum(_layer_of(case).times for case in sweep.cases)
    right = sum(_layer_of(case).times for case in sweep.cases if isfinite(case.ours))
    found = {"layers with a result": f"{right} of {total}, {len(sweep.cases)} different"}
    measured, predicted = _share_of_packing([(case, _layer_of(case).times) for case in sweep.cases])
    if measured != "-":
        found["packing"] = f"{measured} of the time, {predicted} predicted"
    whole: list[tuple[str, Callable[[Result], float]]] = [
        ("to the best peer", Result.ratio),
        *((f"to the best peer in {at}", partial(Result.ratio, layout=at)) for at in LAYOUTS),
        ("to im2col", partial(Result.ratio, peer=IM2COL)),
    ]
    kinds: list[tuple[str, Callable[[LayerCase], bool]]] = [
        ("", lambda _: True),
        ("pointwise, ", lambda layer: layer.work.pointwise and layer.work.groups == 1),
        ("depthwise, ", lambda layer: layer.work.depthwise),
    ]
    for prefix, of_kind in kinds:
        own = [case for case in sweep.cases if of_kind(_layer_of(case))]
        for what, ratio in whole:
            if text := _describe_ratios(own, ratio):
                found[prefix + what] = text
    for library in dict.fromkeys(split_name(name)[0] for name in list_contenders(sweep)):
        text = _describe_ratios(sweep.cases, partial(Result.ratio, peer=library))
        if text and library not in (OURS, IM2COL):
            found[f"to {library}"] = text
    return found


def _describe_ratios(cases: Sequence[Result], ratio: Callable[[Result], float]) -> str:
    """Return the mean of ratios, how many are ahead, and the worst; nothing if there are none."""
    known = [(ratio(case), case) for case in cases if isfinite(ratio(case))]
    if not known:
        return ""
    every = [value for value, case in known for _ in range(_layer_of(case).times)]
    ahead = sum(value >= 1 for value in every) / len(every)
    worst, case = min(known, key=lambda pair: pair[0])
    layers = format_count(len(every), "layer")
    return (
        f"{geometric_mean(every):.2f}, ahead in {ahead:.0%} of {layers}, worst {worst:.2f} "
        f"({case.name})"
    )


def _layer_of(case: Result) -> LayerCase:
    assert isinstance(case.case, LayerCase)
    return case.case
