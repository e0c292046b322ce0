"""What a judgement comes to: the ranker that is kept, and the table that is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesolve.machine.cpu import detect_cpu
from tilesolve.ranking.learning.judging import (
    LEAST_GAIN,
    PRICE,
    Figures,
    Judgement,
    Trials,
    pick_sets,
)
from tilesolve.ranking.learning.learned import (
    LOGISTIC,
    NETWORK,
    LearnedRanker,
    fold_network,
)
from tilesolve.ranking.learning.logistic import fit_logistic
from tilesolve.ranking.learning.network import train_network
from tilesolve.system.version import __version__


def teach(kind: str, suite: str, trials: Sequence[Trials], seed: int) -> LearnedRanker:
    """Return a ranker that has learned from all trials."""
    names = trials[0].names
    weights: tuple[object, ...]
    if kind == LOGISTIC:
        row = fit_logistic([(one.times, one.seconds) for one in trials])
        weights = (tuple(row.tolist()),)
    else:
        samples = pick_sets(trials)
        names = names[: samples[0][0].shape[1]]
        weights = fold_network(train_network(samples, seed))
    return LearnedRanker(kind, detect_cpu().fingerprint, __version__, suite, names, weights)


def list_rows(found: Judgement) -> list[tuple[str, ...]]:
    """Return the cells of a judgement's table: a row for each problem, and their medians."""
    rows = [
        (name, *(_cell(rows[at]) for rows in found.figures.values()))
        for at, name in enumerate(found.problems)
    ]
    return [*rows, ("median", *(_cell(found.median(name)) for name in found.figures))]


def _cell(found: Figures | None) -> str:
    if found is None:
        return "-"
    return f"{100 * found.first:.1f} %, {100 * found.few:.1f} %, {found.correlation:.2f}"


def describe(found: Judgement, trials: Sequence[Trials]) -> Iterator[str]:
    """Yield what a judgement comes to in lines."""
    if NETWORK not in found.figures:
        why = next(one.lacking for one in trials if one.lacking)
        yield f"{NETWORK}: {why}"
    means = {name: f"{100 * found.regret(name):.1f} %" for name in found.figures}
    yield "mean regret of the first: " + ", ".join(f"{name} {x}" for name, x in means.items())
    least = f"{100 * LEAST_GAIN:g} %"
    if found.gains:
        yield f"{found.learned} has less than {PRICE} by over {least}, and no more in the median"
    else:
        yield f"no learned ranker has less than {PRICE} by over {least} and no more in the median"
