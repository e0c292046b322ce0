"""The learned ranker: its scores, and what is kept of it beside this computer's machine file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, Self

import numpy as np

from tilesolve.contractions.errors import PlanError
from tilesolve.machine.cpu import detect_cpu
from tilesolve.machine.places import machine_file
from tilesolve.plans.plan import Plan
from tilesolve.ranking.learning.features import list_sets, list_times, name_times
from tilesolve.ranking.learning.logistic import Numbers
from tilesolve.ranking.learning.network import WIDTHS, Layer, Network, count_defeats
from tilesolve.system.checksums import checksum_of
from tilesolve.system.files import write_atomically
from tilesolve.system.trust import read_trusted
from tilesolve.system.version import __version__

LEARNED = "learned"
"""Name of the ranker that is learned from measurements."""

LOGISTIC, NETWORK = "logistic", "network"
"""Kinds of learned rankers."""

FORMAT = 1
"""Version of the JSON; a file of another version is refused."""

LEARN = "'tilesolve learn FILES.json' learns one from what 'tilesolve bench SUITE --study ranking \
--json FILE' measured"
"""What errors advise."""


@dataclass(frozen=True, slots=True)
class LearnedRanker:
    """A ranker whose weights were learned on one computer.

    Parameters
    ----------
    kind
        ``"logistic"``, weights of logarithms of times, or ``"network"``, which plays pairs of
        variants by their working sets.
    cpu, version
        The fingerprint of that computer, and the version of the package.
    suite
        What it was learned from.
    names
        What the times are of; of a network the levels.
    weights
        Of a logistic ranker a row; of a network each layer's rows, its biases last.
    scores
        Of the variants that it has been shown, by their plan.

    Examples
    --------
    >>> names = ("L1", "L2", "L3", "memory", "compute", "packing", "price")
    >>> by_price = ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),)
    >>> LearnedRanker("logistic", "", "0.1.0", "gemm", names, by_price).name
    'learned'
    """

    kind: str
    cpu: str
    version: str
    suite: str
    names: tuple[str, ...]
    weights: tuple[Any, ...]
    scores: Mapping[Plan, float] | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return LEARNED

    def among(self, plans: Sequence[Plan]) -> Self:
        """Return the ranker with the scores of some variants: a network plays them in pairs.

        Raises
        ------
        PlanError
            If they are for another machine than the one that was learned from.
        """
        for plan in plans:
            self._check(plan)
        if self.kind == LOGISTIC:
            rows = np.array([list_times(plan) for plan in plans])
            found = (rows @ np.array(self.weights[0])).tolist()
        else:
            found = count_defeats(
                unfold_network(self.weights), np.array([list_sets(plan) for plan in plans])
            )
        return replace(self, scores=dict(zip(plans, found, strict=True)))

    def score(self, plan: Plan) -> float:
        """Return the score of a variant that it has been shown, or of a plan alone."""
        known = self.scores or {}
        return known[plan] if plan in known else (self.among([plan]).scores or {})[plan]

    def _check(self, plan: Plan) -> None:
        if plan.machine.fingerprint != self.cpu:
            raise PlanError(
                f"the learned ranker is this computer's, and machine {plan.machine.name!r} is "
                "another: rank by price, reuses or sets"
            )
        names = name_times(plan)
        if self.names != (names if self.kind == LOGISTIC else names[: len(self.names)]):
            raise PlanError(
                f"the learned ranker knows {', '.join(self.names)}, machine "
                f"{plan.machine.name!r} has {', '.join(names)}; {LEARN}"
            )


def learned_file() -> Path:
    """Return where this CPU's learned ranker is kept, which need not exist yet.

    Examples
    --------
    >>> learned_file().name.endswith(".learned.json")
    True
    """
    return machine_file().with_suffix(".learned.json")


def fold_network(network: Network) -> tuple[Any, ...]:
    """Return a network's layers as nested tuples: the rows of weights, then the biases.

    Examples
    --------
    >>> fold_network((Layer(np.ones((1, 2)), np.zeros(2)),))
    (((1.0, 1.0), (0.0, 0.0)),)
    """
    return tuple(
        (*(tuple(row) for row in layer.weights.tolist()), tuple(layer.biases.tolist()))
        for layer in network
    )


def unfold_network(weights: Sequence[Any]) -> Network:
    """Return the network that was folded.

    Examples
    --------
    >>> unfold_network((((1.0, 1.0), (0.0, 0.0)),))[0].weights.tolist()
    [[1.0, 1.0]]
    """
    layers: list[Numbers] = [np.array(rows) for rows in weights]
    return tuple(Layer(rows[:-1], rows[-1]) for rows in layers)


def keep_learned(found: LearnedRanker) -> None:
    """Write a learned ranker beside the machine file, with a checksum.

    Raises
    ------
    FileAccessError
        If the file cannot be written.
    """
    data = {"learned": FORMAT, **asdict(replace(found, scores=None))}
    del data["scores"]
    text = json.dumps({**data, "checksum": checksum_of(data)}) + "\n"
    write_atomically(learned_file(), text, mode=0o644)


def load_learned() -> LearnedRanker:
    """Return the learned ranker of this computer.

    Raises
    ------
    PlanError
        If there is none, or it is damaged, was changed, is of another version or CPU, or somebody
        else could have written it.
    """
    path = learned_file()
    try:
        text = read_trusted(path).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise PlanError(f"no ranker has been learned on this computer: {LEARN}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"the learned ranker in {path} cannot be read: {error}") from None
    try:
        found = _read(text)
    except PlanError as error:
        raise PlanError(f"the learned ranker in {path} is not used: {error}; {LEARN}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise PlanError(f"the learned ranker in {path} is damaged: {why}; {LEARN}") from None
    return found


def _read(text: str) -> LearnedRanker:
    data = json.loads(text)
    if data.get("learned") != FORMAT:
        raise PlanError(f"it is not one of format {FORMAT} but {data.get('learned')!r:.80}")
    said = data.pop("checksum")
    if said != checksum_of(data):
        raise PlanError("it was changed or damaged after it was written")
    del data["learned"]
    found = LearnedRanker(**{name: _freeze(value) for name, value in data.items()})
    if found.cpu != detect_cpu().fingerprint:
        raise PlanError("it was learned on another CPU")
    if found.version != __version__:
        raise PlanError(f"version {found.version} learned it, and this is {__version__}")
    _check_weights(found)
    return found


def _check_weights(found: LearnedRanker) -> None:
    """Refuse weights that do not fit together, or are no numbers."""
    if found.kind not in (LOGISTIC, NETWORK):
        raise PlanError(f"there is no kind {found.kind!r:.80}")
    rows = (
        found.weights if found.kind == LOGISTIC else [row for one in found.weights for row in one]
    )
    if not all(isfinite(value) for row in rows for value in row):
        raise PlanError("a weight is no number")
    count = len(found.names)
    if found.kind == LOGISTIC:
        fits = [len(row) for row in rows] == [count]
    else:
        sizes = [layer.weights.shape for layer in unfold_network(found.weights)]
        fits = sizes == list(pairwise((2 * count, *WIDTHS, 2)))
    if not fits:
        raise PlanError("its weights do not fit together")


def _freeze(value: Any) -> Any:  # noqa: ANN401 - what JSON has
    """Return nested lists as nested tuples."""
    return tuple(_freeze(one) for one in value) if isinstance(value, list) else value
