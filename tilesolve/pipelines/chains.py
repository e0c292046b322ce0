"""Chains: groups that may run in bands, as contractions among them keep them from one group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesolve.nests.classify import is_contraction
from tilesolve.nests.regions import slides
from tilesolve.pipelines.bands import find_rows
from tilesolve.pipelines.grouping import Graph, Names


def list_chains(graph: Graph, groups: Sequence[Names]) -> Iterator[list[Names]]:
    """Yield groups that follow one another along rows; each other one by itself.

    Parameters
    ----------
    graph
        Of all stages.
    groups
        In order.
    """
    chain: list[Names] = []
    for group in groups:
        if chain and not _goes_on(graph, [*chain, group]):
            yield chain
            chain = []
        chain.append(group)
    if chain:
        yield chain


def _goes_on(graph: Graph, chain: Sequence[Names]) -> bool:
    """Return whether groups have a contraction, and the last one reads what others compute."""
    *before, last = chain
    whole = graph.request.computation
    made = {name for one in before for name in one}
    alone = [graph.stages[x] for x in (*made, *last) if x in graph.alone]
    if not alone or not all(slides(x) and not x.where and is_contraction(whole, x) for x in alone):
        return False
    read = {x.array for name in last for x in graph.stages[name].reads}
    if not read & made:
        return False
    near = [one for one in before if read.intersection(one)]
    request = graph.part(name for one in (*near, last) for name in one)
    return find_rows(request.computation, [*near, last]) is not None
