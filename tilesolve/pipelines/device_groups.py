"""Pipelines on a GPU: which stages run in one kernel, by greedy merges (thesis, chapter 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, get_args

from tilesolve.constants.gpu import MOST_ELEMENTS, STAGE_REGISTERS, TRIED_KERNELS
from tilesolve.contractions.errors import DeviceError, PlanError
from tilesolve.contractions.statements.computation import Computation
from tilesolve.contractions.statements.powers import expand_powers
from tilesolve.contractions.statements.stage import Stage
from tilesolve.contractions.statements.terms import Read
from tilesolve.gpu.launches import Launch, Launches
from tilesolve.kernels.gpu.assembling import assemble
from tilesolve.kernels.gpu.stages import StageKernels
from tilesolve.machine.device import Device
from tilesolve.nests.classify import is_contraction
from tilesolve.nests.regions import slides
from tilesolve.pipelines.device_tiles import DeviceGroup, Tiled
from tilesolve.pipelines.grouping import Names
from tilesolve.pipelines.simplify import bind_part, simplify

DeviceFusion = Literal["none", "groups", "nested"]
"""How stages run together: each by itself, in groups that share tiles, or in such groups whose
stages are computed in registers where a single other one needs each element once."""


DeviceMode = Literal["default", "thesis"]
"""By what is decided: the price, or the costs of chapter 6 of the thesis (listing 6.1)."""


@dataclass(frozen=True)
class DeviceStages:
    """How the stages of a pipeline run on a device: groups in order, a kernel each.

    Registers are estimated unless the assembler counted them.
    """

    computation: Computation
    device: Device
    fusion: DeviceFusion
    mode: DeviceMode
    groups: tuple[Tiled, ...]
    assembled: bool

    @property
    def seconds(self) -> float:
        """The predicted time: kernels follow one another."""
        return sum(one.score for one in self.groups)

    @property
    def form(self) -> StageKernels:
        """What code is made of."""
        return StageKernels(tuple(one.kernel for one in self.groups))

    @property
    def launches(self) -> Launches:
        """The kernels, and how they are started."""
        form, found, scratch = self.form, list[Launch](), list[tuple[str, int]]()
        for one in form.kernels:
            names, blocks = tuple(array.name for array in one.arrays), (one.blocks, 1, 1)
            found.append(Launch(form, one.name, blocks, one.threads, one.shared_bytes, names))
            if names[-1] not in self.computation.outputs:
                scratch.append((names[-1], one.arrays[-1].bytes))
        return Launches(tuple(found), scratch=tuple(scratch))


def solve_stages(
    computation: Computation,
    device: Device,
    fusion: DeviceFusion = "nested",
    mode: DeviceMode = "default",
) -> DeviceStages:
    """Decide how stages run on a device: by the price, or by the costs of the thesis.

    Raises
    ------
    PlanError
        If there is no such fusion or mode.
    DeviceError
        If kernels for GPUs do not compute a stage; the message names it.

    Examples
    --------
    >>> from tilesolve.contractions.statements.computation import bind_stages
    >>> from tilesolve.contractions.statements.parse import parse_stages
    >>> text = "b[y,x] = I[y,x] + I[y,x+1]; o[u,v] = b[u,v] + b[u+2,v]"
    >>> sizes = {"y": 1026, "x": 1024, "u": 1024, "v": 1024}
    >>> found = bind_stages(parse_stages(text), sizes, "float32")
    >>> [one.names for one in solve_stages(found, Device.load("a100")).groups]
    [('b', 'o')]
    """
    solver = _make_solver(computation, device, fusion, mode)
    groups = [solver.of((stage.name,)) for stage in solver.computation.stages]
    if fusion != "none":
        groups = solver.merge()
    found, assembled = solver.assemble(groups)
    return DeviceStages(computation, device, fusion, mode, found, assembled)


def restore_stages(
    computation: Computation,
    device: Device,
    groups: Sequence[tuple[Names, Mapping[str, int], int, int]],
    *,
    fusion: DeviceFusion,
    mode: DeviceMode,
    assembled: bool,
) -> DeviceStages:
    """Return how stages run, given each group's stages, tiles, threads and registers.

    Raises
    ------
    PlanError
        If the groups are not all stages in order, or one does not fit the device.
    """
    solver = _make_solver(computation, device, fusion, mode)
    left, found = [one.name for one in solver.computation.stages], list[Tiled]()
    done = {*computation.inputs}
    for at, (names, tiles, threads, registers) in enumerate(groups):
        group = solver.group(names)
        reads = {x.array for one in group.computation.stages for x in one.reads}
        kernel = replace(group.tile(tiles), name=f"group{at}", threads=threads)
        one = group.price(kernel, registers)
        able = {*names} <= {*left} and reads <= {*done, *names}
        if one is None or one.names != names or not able:
            raise PlanError(f"{', '.join(names)} are no group of stages for {device.name}")
        left = [name for name in left if name not in names]
        done.add(names[-1])
        found.append(one)
    if left or not {*computation.outputs} <= done:
        raise PlanError(f"groups of the plan do not compute {computation}")
    return DeviceStages(computation, device, fusion, mode, tuple(found), assembled)


def _make_solver(
    computation: Computation, device: Device, fusion: DeviceFusion, mode: DeviceMode
) -> _Solver:
    """Return what finds groups, of stages as they are computed."""
    asked = {"fusion": (fusion, get_args(DeviceFusion)), "mode": (mode, get_args(DeviceMode))}
    for name, (value, known) in asked.items():
        if not isinstance(value, str) or value not in known:
            raise PlanError(f"{name} on a GPU is one of {', '.join(known)}, not {value!r:.60}")
    check_stages(computation)
    simple = bind_part(computation, tuple(_expand(computation)))
    if fusion == "nested":
        simple = simplify(simple, pinned=frozenset(computation.outputs))
    return _Solver(simple, device, mode)


def _expand(computation: Computation) -> Iterator[Stage]:
    """Yield stages with products in place of small powers, as CPUs have them."""
    for stage in computation.stages:
        term = expand_powers(stage.term, computation.dtypes)
        yield stage if term is stage.term else replace(stage, term=term)


def _take(computation: Computation, stages: tuple[Stage, ...]) -> Computation:
    """Return some stages of a computation, of which others need the last one alone."""
    letters = {letter for stage in stages for letter in stage.letters}
    params = {name for stage in stages for name in stage.params}
    made = {stage.name for stage in stages}
    read = {one.array for stage in stages for one in stage.reads} - made
    return Computation(
        stages,
        tuple((x, extent) for x, extent in computation.extents if x in letters),
        tuple(one for own in (read, made) for one in computation.arrays if one.name in own),
        tuple((name, kind) for name, kind in computation.params if name in params),
        (stages[-1].name,),
    )


def check_stages(computation: Computation) -> None:
    """Raise an error if kernels for GPUs do not compute a stage."""
    times = Counter(stage.name for stage in computation.stages)
    kinds = computation.dtypes
    for stage in computation.stages:
        names = (stage.name, *(read.array for read in stage.reads))
        reasons = {
            "is a scatter: its positions are computed": stage.update is not None,
            "is computed in parts": times[stage.name] > 1,
            "has a region": bool(stage.where),
            "needs its own elements, or searches": not slides(stage),
            "gathers: values are positions": any(
                isinstance(one, Read) and any(x.reads for x in one.parts) for one in stage.term.all
            ),
            "is a contraction, which a plan of its own computes": is_contraction(
                computation, stage
            ),
            "has complex numbers or halves": any(
                kinds[x].startswith("complex") or kinds[x] == "float16" for x in names
            ),
            f"has an array of no element, or of over {MOST_ELEMENTS}": any(
                not 0 < prod(computation.array(x).shape) <= MOST_ELEMENTS for x in names
            ),
        }
        for reason, holds in reasons.items():
            if holds:
                raise DeviceError(f"pipelines on GPUs have no such stage: {stage.name} {reason}")


@dataclass(frozen=True)
class _Solver:
    """Finds groups, and keeps what was found for each."""

    computation: Computation
    device: Device
    mode: DeviceMode
    _known: dict[Names, list[Tiled]] = field(default_factory=dict)
    _groups: dict[Names, DeviceGroup] = field(default_factory=dict)

    def group(self, names: Names) -> DeviceGroup:
        """Return some stages as a group."""
        if names not in self._groups:
            stages = tuple(one for one in self.computation.stages if one.name in names)
            self._groups[names] = DeviceGroup(self.device, _take(self.computation, stages))
        return self._groups[names]

    def rank(self, names: Names) -> list[Tiled]:
        """Return the best kernels of a group; none if it does not fit the device."""
        if names not in self._known:
            group = self.group(names)
            able = all(name in group.regions.spans for name in names)
            found = sorted(group.list_tiled(), key=self.cost) if able else []
            self._known[names] = found[:TRIED_KERNELS]
        return self._known[names]

    def cost(self, one: Tiled) -> float:
        """Return what groups are compared by."""
        return one.score if self.mode == "default" else one.thesis

    def of(self, names: Names) -> Tiled:
        """Return the best kernel of a stage, which has one."""
        found = self.rank(names)
        if not found:
            raise DeviceError(f"{names[-1]} does not fit a multiprocessor of {self.device.name}")
        return found[0]

    def merge(self) -> list[Tiled]:
        """Return groups, merged as long as that lowers what they cost together.

        A group joins the one that needs it, if that is the only one.
        """
        order = [stage.name for stage in self.computation.stages]
        readers: Mapping[str, list[str]] = {name: [] for name in order}
        for one in self.computation.stages:
            for name in {read.array for read in one.reads}.intersection(order):
                readers[name].append(one.name)
        groups: dict[str, Names] = {name: (name,) for name in order}
        home = dict(zip(order, order, strict=True))
        while True:
            best: tuple[float, str, Names] = (0.0, "", ())
            for root in groups:
                homes = {home[x] for x in readers[root]}
                if len(homes) != 1 or root in self.computation.outputs:
                    continue
                (other,) = homes
                names = tuple(x for x in order if home[x] in (root, other))
                together = self.rank(names)
                if together:
                    apart = sum(self.cost(self.of(groups[x])) for x in (root, other))
                    best = max(best, (apart - self.cost(together[0]), root, names))
            gain, root, names = best
            if gain <= 0:
                return [self.of(groups[name]) for name in order if name in groups]
            other = names[-1]
            home |= dict.fromkeys(names, other)
            groups[other] = names
            del groups[root]

    def assemble(self, groups: Sequence[Tiled]) -> tuple[tuple[Tiled, ...], bool]:
        """Return groups with the registers that the assembler counts, and whether there is one.

        A kernel that spills, or of which the device then holds too few blocks, gives way to the
        next one.
        """
        found = dict[int, Tiled]()
        for turn in range(TRIED_KERNELS):
            several = {
                at: replace(self.rank(one.names)[turn].kernel, name=f"group{at}")
                for at, one in enumerate(groups)
                if at not in found and turn < len(self.rank(one.names))
            }
            form = StageKernels(tuple(several.values()))
            made = assemble(form, self.device.capability) if several else None
            for at, kernel in several.items():
                registers, spilled = made.counts[kernel.name] if made else (STAGE_REGISTERS, 0)
                one = self.group(groups[at].names).price(kernel, registers)
                if one is not None and not spilled:
                    found[at] = one
            if len(found) == len(groups):
                return tuple(found[at] for at in range(len(groups))), made is not None
        lacking = next(one.names[-1] for at, one in enumerate(groups) if at not in found)
        raise DeviceError(f"no tiles of {lacking} fit {self.device.name} without spilling")
