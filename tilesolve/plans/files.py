"""Plans as JSON, and plans of the same problem in other letters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Self

from tilesolve.contractions.argument_kinds import check_kind
from tilesolve.contractions.canonical import CanonicalForm
from tilesolve.contractions.epilogue import OWN, Epilogue
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.half_precision import is_half
from tilesolve.contractions.padding import Padding
from tilesolve.contractions.pairing import Pairing
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.nest import Band, Nest
from tilesolve.model.price import Price
from tilesolve.planning.composition.scheme import Scheme
from tilesolve.planning.runner import Runner
from tilesolve.planning.setting import Choice, RuledOut
from tilesolve.planning.solution import Chains, Composed, Search, Sliced, Solution
from tilesolve.plans.values import Codec, ValueFormat
from tilesolve.system.checks import check_threads
from tilesolve.system.checksums import checksum_of

FORMAT = 8
"""Version of the JSON; a file of another version is refused."""

PLAN = "a plan"
"""What such JSON says that it holds."""


def dump(solution: Solution) -> str:
    """Return a plan as JSON."""
    return seal(PLAN, FORMAT, dump_data(solution))


def seal(holds: str, version: int, data: Mapping[str, Any]) -> str:
    """Return JSON that says what it holds and in which version, and has a checksum."""
    whole = {"format": version, "holds": holds, **data}
    return json.dumps({**whole, "checksum": checksum_of(whole)})


def unseal(text: str, holds: str, version: int) -> dict[str, Any]:
    """Return what JSON says by `seal`; a text without a checksum is read, too.

    Raises
    ------
    PlanError
        If it holds something else, is of another version, or was changed.

    Examples
    --------
    >>> unseal(seal("tiles", 1, {"i": 4}), "tiles", 1)["i"]
    4
    """
    check_kind(text, str, f"text of {holds}", "JSON", PlanError)
    with refuse_damage():
        data = json.loads(text)
        found = data.get("holds", PLAN)
    if found != holds:
        raise PlanError(f"this is {found!r:.60}, not {holds!r}")
    if data.get("format") != version:
        raise PlanError(f"not {holds} of format {version} but {data.get('format')!r}")
    said = data.pop("checksum", None)
    if said is not None and said != checksum_of(data):
        raise PlanError(
            "it was changed or damaged after it was written: its checksum is another; "
            "make it again, or remove its entry 'checksum' if the change is meant"
        )
    return dict(data)


@contextmanager
def refuse_damage() -> Iterator[None]:
    """Raise a `PlanError` where a wrong entry of a file raises something else."""
    try:
        yield
    except PlanError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise PlanError(f"a damaged plan: {type(error).__name__}: {error}") from None


def dump_data(solution: Solution) -> dict[str, Any]:
    """Return a plan as what JSON holds, without the format's number; `load_data` reads it."""
    return dict(VALUES.write(solution))


def load(text: str, epilogue: Epilogue | None = None) -> Solution:
    """Read a plan from JSON.

    A text without a checksum is read, too.

    Parameters
    ----------
    text
        The JSON.
    epilogue
        The plan's chain, where it has functions of one's own: the text has their names alone.

    Raises
    ------
    PlanError
        If the text is damaged, was changed, or is of another version, or has such functions and
        they are not given.

    Examples
    --------
    >>> load("{}")
    Traceback (most recent call last):
    tilesolve.contractions.errors.PlanError: not a plan of format 8 but None
    """
    data = unseal(text, PLAN, FORMAT)
    with refuse_damage():
        return load_data(data, read_machine(data["machine"]), epilogue)


@lru_cache(maxsize=8)
def read_machine(text: str) -> Machine:
    """Return the machine of a plan: many plans have the same one, and its text takes longest."""
    return Machine.from_toml(text)


def load_data(
    data: Mapping[str, Any], machine: Machine, epilogue: Epilogue | None = None
) -> Solution:
    """Return the plan that `dump_data` gave, for the machine that it was made for.

    What is damaged raises a `PlanError`, or what a wrong entry raises where it is used.
    """
    known = {"machine": machine, "epilogue": _epilogue(data["epilogue"], epilogue)}
    rest = {name: one for name, one in data.items() if name not in ("format", "holds", *known)}
    return _checked(VALUES.read(Solution, rest, **known))


def _checked(found: Solution) -> Solution:
    """Return a plan if what runs by it fits together: a wrong part would be a wrong result."""
    check_threads(found.threads)
    output = found.problem.spec.output.letters
    levels = {band.level for band in found.nest.bands if band.level}
    known = found.problem.sizes
    if found.split is not None and found.split not in known:
        raise PlanError(f"its threads divide {found.split!r}, the spec has {', '.join(known)}")
    if found.partial_outputs and is_half(found.problem.dtype):
        raise PlanError(
            f"its threads divide the sum over {found.split!r}, and parts of halves round"
        )
    if found.vector is not None and found.vector not in output:
        raise PlanError(f"vectors lie along {found.vector!r}, the output has {', '.join(output)}")
    for level in found.nest.packed or ():
        if level is not None and level not in levels:
            raise PlanError(f"an operand is packed into {level!r}, there are {sorted(levels)}")
    if found.epilogue is not None:
        found.epilogue.check(found.problem)
    found.nest.check(found.share)
    return found


def _epilogue(text: str | None, given: Epilogue | None) -> Epilogue | None:
    """Return the chain that is written, or the given one if it is that."""
    if text is None:
        return None
    if given is not None and str(given) == text:
        return given
    if f"{OWN}(" in text:
        raise PlanError(
            f"the plan's epilogue {text!r} has a function that JSON cannot hold: plan it again "
            "with tilesolve.elementwise, or pickle the plan"
        )
    return Epilogue.parse(text)


def _write_problem(problem: Problem) -> dict[str, Any]:
    return {
        "spec": str(problem.spec),
        "sizes": dict(problem.sizes),
        "dtype": problem.dtype,
        "padding": [asdict(one) for one in problem.padding],
        "constant": list(problem.constant),
        "aligned_output": problem.aligned_output,
        **({"pairing": str(problem.pairing)} if problem.pairing else {}),
    }


def _read_problem(data: Mapping[str, Any]) -> Problem:
    padding = (Padding(**one) for one in data["padding"])
    found = Problem.of(data["spec"], data["sizes"], data["dtype"], padding, data["constant"])
    # Older files do not have it, and were planned for outputs amid lines.
    aligned, pairing = data.get("aligned_output", False), data.get("pairing")
    paired = Pairing.parse(pairing) if pairing else None
    return replace(found, aligned_output=aligned, pairing=paired)


CODECS: Mapping[type, Codec] = {
    Machine: (Machine.to_toml, read_machine),
    Problem: (_write_problem, _read_problem),
    Epilogue: (str, Epilogue.parse),
    Scheme: (str, Scheme.of),
}
"""What is written otherwise than field by field."""

VALUES = ValueFormat(CODECS)
"""How solutions are written."""


def rename_letters(solution: Solution, problem: Problem, form: CanonicalForm) -> Solution:
    """Return the solution of a canonical problem as one of a problem that has this form.

    Parameters
    ----------
    solution
        Of ``form.problem``.
    problem
        Whose canonical form it is.
    form
        How the letters and operands correspond.
    """
    names = _Names.of(problem, form)
    found = replace(
        solution,
        problem=problem,
        split=names.letters[solution.split] if solution.split else None,
        vector=names.letters[solution.vector] if solution.vector else None,
        epilogue=solution.epilogue.rename(names.letters) if solution.epilogue else None,
        choice=names.choice(solution.choice),
        classes=names.classes(solution.classes),
        nearest=names.box(solution.nearest),
        nest=names.nest(solution.nest),
        cost=names.cost(solution.cost),
        origin=names.origin(solution.origin),
    )
    # Loops that do not run are in the order of the problem's own letters.
    return replace(found, nest=Runner.of(found.share, found.machine).form(found.nest))


@dataclass(frozen=True, slots=True)
class _Names:
    """The names that a problem has for what its canonical form has.

    Parameters
    ----------
    problem
        The problem.
    letters
        Its letters by those of the form.
    indices
        Its classes by those of the form.
    classes_in_order
        Its classes.
    order
        For each operand the number that it has in the form.
    """

    problem: Problem
    letters: Mapping[str, str]
    indices: Mapping[str, str]
    classes_in_order: tuple[str, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem, form: CanonicalForm) -> Self:
        letters = {new: old for old, new in form.letters}
        groups = {frozenset(group): index for index, group in fuse(problem).groups}
        indices = {
            index: groups[frozenset(letters[i] for i in group)]
            for index, group in fuse(form.problem).groups
        }
        place = {old: new for new, old in enumerate(form.operands)}
        order = tuple(place[at] for at in range(len(form.operands)))
        return cls(problem, letters, indices, tuple(groups.values()), order)

    def operands(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[at] for at in self.order)

    def tensors(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return (values[0], *self.operands(values[1:]))

    def choice(self, orders: Sequence[str | None]) -> Choice:
        return tuple(
            first if first is None else "".join(self.indices[i] for i in first) for first in orders
        )

    def classes(self, chains: Chains) -> Chains:
        """Return the tiles of each class, in the problem's order of classes."""
        found = {self.indices[index]: chain for index, chain in chains}
        return tuple((index, found[index]) for index in self.classes_in_order if index in found)

    def box(self, pairs: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        box = {self.letters[i]: size for i, size in pairs}
        return tuple((i, box[i]) for i in self.problem.spec.letters)

    def nest(self, nest: Nest) -> Nest:
        bands = []
        for band in nest.bands:
            order = tuple(self.letters[i] for i in band.order)
            bands.append(Band(band.level, order, self.box(band.box)))
        return replace(
            nest,
            bands=tuple(bands),
            packed=self.operands(nest.packed),
            kinds=self.operands(nest.kinds) if nest.kinds else (),
            cells=tuple((self.letters[i], sizes) for i, sizes in nest.cells),
        )

    def cost(self, cost: Price) -> Price:
        levels = tuple(
            replace(
                level,
                moved=self.tensors(level.moved),
                volumes=self.tensors(level.volumes),
                packing=self.tensors(level.packing),
            )
            for level in cost.levels
        )
        return replace(cost, levels=levels, packed=self.operands(cost.packed))

    def origin(self, search: Search | Composed | Sliced) -> Search | Composed | Sliced:
        if isinstance(search, Sliced):
            return search
        if isinstance(search, Composed):
            return replace(search, scheme=search.scheme.rename(self.letters))
        tiles = tuple((self._symbol(name), size) for name, size in search.tiles)
        second = search.runner_up
        runner_up = (self.choice(second[0]), second[1]) if second else None
        ruled_out = tuple(map(self._ruled_out, search.ruled_out))
        return replace(search, tiles=tiles, ruled_out=ruled_out, runner_up=runner_up)

    def _ruled_out(self, one: RuledOut) -> RuledOut:
        return replace(
            one,
            choices=tuple(map(self.choice, one.choices)),
            loops=self.choice(one.loops),
            sizes=tuple((self._symbol(name), size) for name, size in one.sizes),
            multipliers=tuple((self._constraint(name), size) for name, size in one.multipliers),
        )

    def _symbol(self, name: str) -> str:
        head, _, index = name.partition("_")
        return f"{head}_{self.indices[index]}"

    def _constraint(self, name: str) -> str:
        """Return a constraint's name: of times, of sizes of tiles, or of what a tensor takes."""
        kind, _, inside = name.removesuffix("]").partition("[")
        if kind == "nested":
            return f"nested[{','.join(map(self._symbol, inside.split(',')))}]"
        head, _, tensor = inside.rpartition("_")
        names = self.problem.spec.names
        if kind == "limit" and tensor in names:
            new = names[0], *(names[1 + self.order.index(at)] for at in range(len(self.order)))
            return f"limit[{head}_{new[names.index(tensor)]}]"
        return name
