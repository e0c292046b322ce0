"""A sweep of layers as tables: layers with the worst first, networks, and means over all layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf, isfinite, isnan
from pathlib import Path

from tilesolve.bench.contenders import OURS
from tilesolve.bench.layer_contenders import IM2COL, LAYOUTS, split_name
from tilesolve.bench.results.layer_sweeps import LayerCase, LayerSweep
from tilesolve.bench.results.performance_page import render_pairs, render_table
from tilesolve.bench.results.summary import NOT_INSTALLED, geometric_mean, list_facts
from tilesolve.system.units import format_count, format_duration, format_volume

LAYER_UNITS = (
    "speeds in GFLOP/s; convolution, bias and ReLU, padding inside, weights prepared; ratios are "
    "of the fastest of ours to the fastest of others, in one layout or in any; packed: in each "
    "call; packing: its share of a call's time, by a clock read before and after each copy in runs "
    "of their own, and the share that the price gives it"
)
"""What stands below the table of layers."""

MODEL_COLUMNS = {
    "network": "left",
    "layers": "right",
    "GFLOP": "right",
    OURS: "right",
    "best peers": "right",
    "im2col": "right",
    "to best peers": "right",
    "to im2col": "right",
    "ahead": "right",
    "packing": "right",
    "predicted packing": "right",
}
"""Headers of the table of networks."""


def list_layer_contenders(sweep: LayerSweep) -> list[str]:
    """Return the contenders that are installed, ours first."""
    measured = [case for case in sweep.cases if case.entries]
    return [
        name
        for name in sweep.conditions.contenders
        if not measured
        or any(
            name in case.entries and case.entries[name].reason != NOT_INSTALLED for case in measured
        )
    ]


def sort_layers(sweep: LayerSweep) -> list[LayerCase]:
    """Return the layers: without a result, then by the ratio to the best peer, skipped ones last.

    Where there is no peer they stay as they were measured.
    """

    def sort_key(case: LayerCase) -> tuple[bool, float]:
        ratio = case.ratio()
        return bool(case.skipped), ratio if isfinite(ratio) else -inf if isnan(case.ours) else inf

    return sorted(sweep.cases, key=sort_key)


def list_layer_columns(sweep: LayerSweep) -> dict[str, str]:
    """Return the headers of the table of layers, each with the side that its cells stand on."""
    ratios = ("to best peer", *(f"in {layout}" for layout in LAYOUTS), "to im2col")
    figures = (
        *("times", "GFLOP", "roofline", *ratios, "predicted", "bound by", "packed"),
        *("packing", "predicted packing", "planning"),
        *list_layer_contenders(sweep),
    )
    return {"layer": "left"} | dict.fromkeys(figures, "right")


def list_layer_rows(sweep: LayerSweep) -> list[tuple[str, ...]]:
    """Return the cells of the table of layers, worst first."""
    names, width = list_layer_contenders(sweep), len(list_layer_columns(sweep))
    found = []
    for case in sort_layers(sweep):
        head = (case.name, str(case.times), f"{case.layer.flops / 1e9:.3g}")
        if case.skipped:
            found.append((*head, "skipped", *[""] * (width - len(head) - 1)))
            continue
        mine = case.fastest(ours=True)
        figures, entry = case.figures.get(mine), case.entries.get(mine)
        planning = entry.preparation if entry else None
        found.append(
            (
                *head,
                format_duration(figures.roofline) if figures else "-",
                _format_ratio(case.ratio()),
                *(_format_ratio(case.ratio(layout=layout)) for layout in LAYOUTS),
                _format_ratio(case.ratio(peer=IM2COL)),
                _format_ratio(figures.predicted / case.ours) if figures else "-",
                figures.bottleneck if figures else "-",
                format_volume(figures.packed) if figures else "-",
                *(_format_shares(figures.packing, figures.predicted_packing) if figures else "--"),
                "-" if planning is None else format_duration(planning),
                *(_format_speed(case, name) for name in names),
            )
        )
    return found


def _format_ratio(value: float) -> str:
    return f"{value:.2f}" if isfinite(value) else "-"


def _format_shares(*shares: float) -> list[str]:
    return [f"{share:.1%}" for share in shares]


def _format_speed(case: LayerCase, name: str) -> str:
    """Return a contender's GFLOP/s, or the first word of why there are none."""
    entry = case.entries.get(name)
    if entry is None:
        return "-"
    return f"{case.speed(name) / 1e9:.3g}" if entry.seconds else entry.reason.split()[0].strip(":,")


def list_model_rows(sweep: LayerSweep) -> list[tuple[str, ...]]:
    """Return the cells of the table of networks: the time of all their layers together.

    Layers that ours, im2col or all peers have no result for count for none of them, and the number
    of layers says so.
    """
    models = dict.fromkeys(model for case in sweep.cases for model, _ in case.uses)
    return [_sum_model(model, sweep) for model in models]


def _sum_model(model: str, sweep: LayerSweep) -> tuple[str, ...]:
    layers = [(case, dict(case.uses)[model]) for case in sweep.cases if model in dict(case.uses)]
    asked = [OURS, *_list_peers(sweep)]
    measured = [
        (case, times)
        for case, times in layers
        if all(isfinite(_time_of(case, library)) for library in asked)
    ]
    there, every = (sum(times for _, times in rows) for rows in (measured, layers))
    count = str(every) if there == every else f"{there} of {every}"
    if not measured:
        return (model, count, *["-"] * (len(MODEL_COLUMNS) - 2))
    flops = sum(times * case.layer.flops for case, times in measured)
    spent = {
        library: sum(times * _time_of(case, library) for case, times in measured)
        for library in asked
    }
    peers, copies = spent.get("", 0.0), spent.get(IM2COL, 0.0)
    ahead = sum(times for case, times in measured if case.ratio() >= 1)
    return (
        model,
        count,
        f"{flops / 1e9:.2f}",
        format_duration(spent[OURS]),
        format_duration(peers) if peers else "-",
        format_duration(copies) if copies else "-",
        f"{peers / spent[OURS]:.2f}" if peers else "-",
        f"{copies / spent[OURS]:.2f}" if copies else "-",
        f"{ahead / there:.0%}" if peers else "-",
        *_share_of_packing(measured),
    )


def _share_of_packing(layers: Sequence[tuple[LayerCase, int]]) -> list[str]:
    """Return packing's share of the time of our plans for layers: measured, and predicted."""
    spent, packed = [0.0, 0.0], [0.0, 0.0]
    for case, times in layers:
        figures = case.figures.get(case.fastest(ours=True))
        if figures is not None:
            shares = figures.packing, figures.predicted_packing
            for at, seconds in enumerate((case.ours, figures.predicted)):
                spent[at] += times * seconds
                packed[at] += times * seconds * shares[at]
    return _format_shares(packed[0] / spent[0], packed[1] / spent[1]) if spent[0] else ["-", "-"]


def _list_peers(sweep: LayerSweep) -> list[str]:
    """Return "" where there are peers, and im2col where it is one of them."""
    libraries = {split_name(name)[0] for name in list_layer_contenders(sweep)} - {OURS}
    return [*([""] if libraries else []), *([IM2COL] if IM2COL in libraries else [])]


def _time_of(case: LayerCase, library: str) -> float:
    """Return the best seconds of ours, of a library, or of all peers for an empty name."""
    mine = library == OURS
    return case.seconds(case.fastest(ours=mine, library="" if mine else library))


def list_layer_means(sweep: LayerSweep) -> dict[str, str]:
    """Return means over all layers, each counted as often as networks have it, by what is meant."""
    total = sum(case.times for case in sweep.cases)
    right = sum(case.times for case in sweep.cases if isfinite(case.ours))
    found = {"layers with a result": f"{right} of {total}, {len(sweep.cases)} different"}
    measured, predicted = _share_of_packing([(case, case.times) for case in sweep.cases])
    if measured != "-":
        found["packing"] = f"{measured} of the time, {predicted} predicted"
    whole: list[tuple[str, Callable[[LayerCase], float]]] = [
        ("to the best peer", lambda case: case.ratio()),
        *((f"to the best peer in {at}", _ratio_in(at)) for at in LAYOUTS),
        ("to im2col", lambda case: case.ratio(peer=IM2COL)),
    ]
    kinds: list[tuple[str, Callable[[LayerCase], bool]]] = [
        ("", lambda _: True),
        ("pointwise, ", lambda case: case.layer.pointwise and case.layer.groups == 1),
        ("depthwise, ", lambda case: case.layer.depthwise),
    ]
    for prefix, of_kind in kinds:
        own = [case for case in sweep.cases if of_kind(case)]
        for what, ratio in whole:
            if text := _describe_ratios(own, ratio):
                found[prefix + what] = text
    for library in dict.fromkeys(split_name(name)[0] for name in list_layer_contenders(sweep)):
        text = _describe_ratios(sweep.cases, _ratio_to(library))
        if text and library != IM2COL:
            found[f"to {library}"] = text
    return found


def _ratio_in(layout: str) -> Callable[[LayerCase], float]:
    return lambda case: case.ratio(layout=layout)


def _ratio_to(library: str) -> Callable[[LayerCase], float]:
    return lambda case: case.ratio(peer=library)


def _describe_ratios(cases: Sequence[LayerCase], ratio: Callable[[LayerCase], float]) -> str:
    """Return the mean of ratios, how many are ahead, and the worst; nothing if there are none."""
    known = [(ratio(case), case) for case in cases if isfinite(ratio(case))]
    if not known:
        return ""
    every = [value for value, case in known for _ in range(case.times)]
    ahead = sum(value >= 1 for value in every) / len(every)
    worst, case = min(known, key=lambda pair: pair[0])
    layers = format_count(len(every), "layer")
    return (
        f"{geometric_mean(every):.2f}, ahead in {ahead:.0%} of {layers}, worst {worst:.2f} "
        f"({case.name})"
    )


def list_layer_notes(sweep: LayerSweep) -> list[str]:
    """Return a line for each contender that is not installed, or without a result for a layer."""
    there = list_layer_contenders(sweep)
    found = [
        f"{name}: {NOT_INSTALLED}" for name in sweep.conditions.contenders if name not in there
    ]
    for case in sort_layers(sweep):
        if case.skipped:
            found.append(f"{case.name}: {case.skipped}")
        found += [
            f"{case.name}, {name}: {entry.reason}"
            for name, entry in case.entries.items()
            if entry.reason and name in there
        ]
    return found


def render_layers(sweep: LayerSweep) -> str:
    """Return the section of a sweep of layers on the page of a CPU."""
    return "\n".join(_render(sweep))


def _render(sweep: LayerSweep) -> Iterator[str]:
    made = sweep.conditions
    dtypes = ", ".join(dict.fromkeys(case.layer.dtype for case in sweep.cases))
    threads = format_count(made.threads, "thread")
    yield f"## layers of {Path(made.suite).stem}, {made.dtype or dtypes}, {threads}"
    yield from render_pairs("measured", {**list_facts(sweep), "units": LAYER_UNITS})
    yield from render_table(
        {"contender": "left", "version and settings": "left"},
        [tuple(label.split(": ", 1)) for label in made.contenders.values()],
    )
    yield from render_pairs("geometric means", list_layer_means(sweep))
    yield from render_table(MODEL_COLUMNS, list_model_rows(sweep))
    yield from render_table(list_layer_columns(sweep), list_layer_rows(sweep))
    if found := list_layer_notes(sweep):
        yield from render_table({"notes": "left"}, [(note,) for note in found])
