"""Plans as JSON, and plans of the same problem in other letters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tilesolve.contractions.canonical import CanonicalForm
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.problem import Problem
from tilesolve.machine.microkernel import Microkernel
from tilesolve.machine.model import Machine
from tilesolve.model.fused import fuse
from tilesolve.model.nest import Band, Nest
from tilesolve.model.price import LevelPrice, Price
from tilesolve.plans.plan import Plan, Search
from tilesolve.system.checks import check_threads

FORMAT = 1
"""Version of the JSON; a file of another version is refused."""


def dump(plan: Plan) -> str:
    """Return a plan as JSON.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> dump(plan("ik-ij-jk", 8, "i7-6700k", cache=False))[:46]
    '{"format": 1, "problem": {"spec": "ik-ij-jk", '
    """
    problem = plan.problem
    return json.dumps(
        {
            "format": FORMAT,
            "problem": {
                "spec": str(problem.spec),
                "sizes": dict(problem.sizes),
                "dtype": problem.dtype,
            },
            "machine": plan.machine.to_toml(),
            **{
                field.name: _plain(getattr(plan, field.name))
                for field in fields(Plan)
                if field.init and field.name not in ("problem", "machine")
            },
        }
    )


def load(text: str) -> Plan:
    """Read a plan from JSON.

    Raises
    ------
    PlanError
        If the text is damaged or of another version.

    Examples
    --------
    >>> load("{}")
    Traceback (most recent call last):
    tilesolve.contractions.errors.PlanError: not a plan of format 1 but None
    """
    try:
        data = json.loads(text)
        if data.get("format") != FORMAT:
            raise PlanError(f"not a plan of format {FORMAT} but {data.get('format')!r}")
        return _checked(_plan(data))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"a damaged plan: {type(error).__name__}: {error}") from None


def _checked(found: Plan) -> Plan:
    """Return a plan if what runs by it fits together: a wrong part would be a wrong result."""
    check_threads(found.threads)
    output, levels = found.problem.spec.output.letters, {band.level for band in found.nest.bands}
    if found.split is not None and found.split not in output:
        raise PlanError(f"its threads divide {found.split!r}, the output has {', '.join(output)}")
    for level in found.nest.packed or ():
        if level is not None and level not in levels:
            raise PlanError(f"an operand is packed into {level!r}, there are {sorted(levels)}")
    found.nest.check(found.share)
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a frozen value as lists and dictionaries."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _tuple(value: Any) -> Any:  # noqa: ANN401
    """Return nested lists as nested tuples."""
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value


def _frozen(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) for name, value in data.items()}


def _plan(data: Mapping[str, Any]) -> Plan:
    problem, nest, price = data["problem"], data["nest"], data["price"]
    return Plan(
        problem=Problem.of(problem["spec"], problem["sizes"], problem["dtype"]),
        machine=Machine.from_toml(data["machine"]),
        threads=data["threads"],
        split=data["split"],
        output=data["output"],
        microkernel=Microkernel(**data["microkernel"]),
        choice=_tuple(data["choice"]),
        classes=_tuple(data["classes"]),
        nest=Nest(
            tuple(Band(**_frozen(band)) for band in nest["bands"]),
            _tuple(nest["packed"]),
            nest["output"],
        ),
        price=Price(
            tuple(LevelPrice(**_frozen(level)) for level in price["levels"]),
            price["compute"],
            price["calls"],
            _tuple(price["packed"]),
        ),
        search=Search(**_frozen(data["search"])),
    )


def renamed(plan: Plan, problem: Problem, form: CanonicalForm) -> Plan:
    """Return the plan of a canonical problem as one of a problem that has this form.

    Parameters
    ----------
    plan
        Of ``form.problem``.
    problem
        Whose canonical form it is.
    form
        How the letters and operands correspond.

    Examples
    --------
    >>> from tilesolve.plans.plan import plan
    >>> problem = Problem.of("xz-yz-xy", 64)
    >>> from tilesolve.contractions.canonical import canonicalize
    >>> form = canonicalize(problem)
    >>> found = renamed(plan(form.problem, machine="i7-6700k", cache=False), problem, form)
    >>> [index for index, _ in found.classes]
    ['M', 'N', 'K']
    """
    letters = {new: old for old, new in form.letters}
    groups = {frozenset(group): index for index, group in fuse(problem).groups}
    indices = {
        index: groups[frozenset(letters[i] for i in group)]
        for index, group in fuse(form.problem).groups
    }
    place = {old: new for new, old in enumerate(form.operands)}
    order = [place[at] for at in range(len(form.operands))]

    def operands(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[at] for at in order)

    def tensors(values: Sequence[Any]) -> tuple[Any, ...]:
        return (values[0], *operands(values[1:]))

    def choice(orders: Sequence[str | None]) -> tuple[str | None, ...]:
        return tuple(
            first if first is None else "".join(indices[i] for i in first) for first in orders
        )

    def symbol(name: str) -> str:
        head, _, index = name.partition("_")
        return f"{head}_{indices[index]}"

    bands = []
    for band in plan.nest.bands:
        box = {letters[i]: size for i, size in band.box}
        bands.append(
            Band(
                band.level,
                tuple(letters[i] for i in band.order),
                tuple((i, box[i]) for i in problem.spec.letters),
            )
        )
    levels = tuple(
        replace(
            level,
            moved=tensors(level.moved),
            volumes=tensors(level.volumes),
            packing=tensors(level.packing),
        )
        for level in plan.price.levels
    )
    search = plan.search
    runner_up = search.runner_up
    return replace(
        plan,
        problem=problem,
        split=letters[plan.split] if plan.split else None,
        choice=choice(plan.choice),
        classes=tuple(
            sorted(
                ((indices[i], chain) for i, chain in plan.classes),
                key=lambda item: list(groups.values()).index(item[0]),
            )
        ),
        nest=replace(plan.nest, bands=tuple(bands), packed=operands(plan.nest.packed)),
        price=replace(plan.price, levels=levels, packed=operands(plan.price.packed)),
        search=replace(
            search,
            tiles=tuple((symbol(name), size) for name, size in search.tiles),
            runner_up=(choice(runner_up[0]), runner_up[1]) if runner_up else None,
        ),
    )
