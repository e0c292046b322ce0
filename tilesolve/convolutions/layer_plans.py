"""What runs a convolution: its plans, and the views that they take of a layer's arrays."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from math import prod

import numpy.typing as npt

from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.convolution import Convolution, Form
from tilesolve.contractions.epilogue import Epilogue, EpilogueArgument, Operation
from tilesolve.contractions.errors import SizeError, SolverError, SpecError
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.contractions.problem import Problem
from tilesolve.machine.model import Machine
from tilesolve.nests.plan import NestPlan
from tilesolve.nests.task_writer import TaskWriter
from tilesolve.packing.memory_overlap import Array
from tilesolve.plans.plan import Plan, plan
from tilesolve.running.prepared import Prepared
from tilesolve.running.repeat_call import Argument, RepeatCall
from tilesolve.system.checks import check_dtype, check_output
from tilesolve.system.result_buffers import begins_with_line, is_new_aligned, new_result
from tilesolve.system.units import format_volume


@dataclass(frozen=True, slots=True)
class LayerRequest:
    """A layer as it was asked for: the convolution, its epilogue, and the options of `plan`.

    Parameters
    ----------
    activation
        The functions that are applied to each element at the end.
    has_bias, has_residual
        Whether a number for each channel, and an array like the result, are added before.
    constant
        Whether weights stay the same from call to call.
    """

    convolution: Convolution
    activation: Epilogue
    has_bias: bool = False
    has_residual: bool = False
    constant: bool = True
    machine: Machine | str | None = None
    threads: int | None = None
    strategy: str = "solver"
    tries: int = 1
    cache: bool = True

    def plan(
        self,
        problem: Problem,
        epilogue: Epilogue,
        *,
        accumulate: bool = False,
        aligned_output: bool = True,
    ) -> Plan:
        """Return the plan of one form of the layer, for large results that are new if aligned."""
        return plan(
            problem,
            machine=self.machine,
            threads=self.threads,
            accumulate=accumulate,
            epilogue=epilogue,
            strategy=self.strategy,
            tries=self.tries,
            aligned_output=aligned_output and is_new_aligned(problem.bytes[0]),
            cache=self.cache,
        )

    def report(self, plan: Plan | NestPlan, packed_bytes: int = 0) -> str:
        """Return the layer's report: its arguments, how weights and padding are read, its plan."""
        follows = ["bias"] * self.has_bias + ["residual"] * self.has_residual
        follows += [str(self.activation)] if self.activation.operations else []
        lines = [", ".join((f"conv {self.convolution}", *follows))]
        if self.convolution.pointwise:
            lines.append("a product of matrices, where pixels are one axis in memory")
        if packed_bytes:
            lines.append(f"weights are packed once into {format_volume(packed_bytes)}")
        return "\n".join((*lines, "", str(plan)))


@dataclass(slots=True, eq=False)
class LayerPlans:
    """The plans of a layer, each made when arrays first need it."""

    request: LayerRequest
    _forms: dict[bool, Form] = field(default_factory=dict, init=False)
    _made: dict[tuple[bool, bool, bool], tuple[Form, Plan]] = field(
        default_factory=dict, init=False
    )

    def form(self, flat: bool) -> Form:
        """Return the convolution as a problem with views; flat: with all pixels as one axis."""
        found = self._forms.get(flat)
        if found is None:
            found = self._forms[flat] = self.request.convolution.form(flat=flat)
        return found

    def made(self, flat: bool, adds: bool = False, aligned: bool = True) -> tuple[Form, Plan]:
        """Return the form and its plan.

        Parameters
        ----------
        flat
            Of arrays whose pixels are one axis.
        adds
            Of calls whose residual is what `out` holds.
        aligned
            Of results that begin with a line, if they are large; else amid one.
        """
        found = self._made.get((flat, adds, aligned))
        if found is None and not aligned:
            found = self._made.get((flat, adds, True))
            if found and found[1].output == "stream":  # a plan that depends on it
                found = None
        if found is None:
            form = self.form(flat)
            constant = form.problem.constant if self.request.constant else ()
            problem = replace(form.problem, constant=constant)
            try:
                made = self.request.plan(
                    problem, self.chain(form, adds), accumulate=adds, aligned_output=aligned
                )
            except SolverError as error:
                if flat == self.request.convolution.pointwise:
                    raise
                raise SolverError(
                    "pixels of x or of the result are no single axis in memory, and for such "
                    f"arrays there is no plan: {error}; give arrays in C order"
                ) from error
            found = self._made[flat, adds, aligned] = form, made
        return found

    def made_for(self, flat: bool, out: Array, adds: bool = False) -> tuple[Form, Plan]:
        """Return the form and the plan for an output, by where it begins."""
        large = is_new_aligned(out.nbytes)
        return self.made(flat, adds, not large or begins_with_line(self.form(flat).results(out)))

    def chain(self, form: Form, adds: bool) -> Epilogue:
        """Return what follows the convolution, in the letters of a form, and the sum with `out`."""
        added = []
        if self.request.has_bias:
            added.append(Operation("+", tuple(form.channel_letters)))
        if self.request.has_residual and not adds:
            added.append(Operation("+", form.problem.spec.output.letters))
        return Epilogue((*added, *self.request.activation.operations))

    def is_flat(self, *arrays: Array) -> bool:
        """Return whether pixels of images and results are one axis in memory, and may be."""
        if not self.request.convolution.pointwise:
            return False
        form = self.form(True)
        return form.images.fits(arrays[0]) and all(map(form.results.fits, arrays[1:]))

    def run(
        self,
        flat: bool,
        x: Array,
        weights: Array | Prepared,
        bias: Array | None,
        residual: Array | None,
        out: Array,
    ) -> None:
        """Compute a layer of arrays that were checked; weights are as the form views them.

        The residual may be `out`; weights that were prepared are of the plan for that then.
        """
        adds = residual is out
        form, found = self.made_for(flat, out, adds)
        others = [one.view for one in _operands(form, bias, None if adds else residual)]
        found(form.images(x), weights, form.results(out), beta=float(adds), operands=others)

    def write(
        self,
        tasks: TaskWriter,
        flat: bool,
        x: Array,
        weights: Prepared,
        bias: Array | None,
        residual: Array | None,
        out: Array,
    ) -> bool:
        """Write down what `run` does, if that is the same in each call; return whether it is.

        Of weights that were prepared the packed ones alone are kept.
        """
        adds = residual is out
        form, found = self.made_for(flat, out, adds)
        others = [one.view for one in _operands(form, bias, None if adds else residual)]
        results, images = form.results(out), form.images(x)
        parts = found.executor.list_tasks(results, images, weights, others)
        if parts:
            weights.drop_array()
            tensors = (results, images, weights.like)
            tasks.kept.append(parts)
            tasks.write_product(parts, tensors, others, float(adds))
        return bool(parts)

    def recall(
        self,
        flat: bool,
        x: Array,
        weights: Prepared,
        bias: Array | None,
        residual: Array | None,
        out: Array,
    ) -> RepeatCall | None:
        """Return what computes at once for calls like one that has run; None if nothing can.

        Nothing can if the residual was `out`, or where plans depend on where it begins.
        """
        form, found = self.made_for(flat, out)
        if residual is out or found.output == "stream":
            return None
        return found.executor.recall(
            Argument(form.results(out), out),
            Argument(form.images(x), x),
            weights,
            _operands(form, bias, residual),
        )


def _operands(form: Form, bias: Array | None, residual: Array | None) -> list[Argument]:
    """Return what the epilogue takes: a layer's own bias, and what calls are given."""
    operands = [] if bias is None else [Argument(form.channels(bias))]
    if residual is not None:
        operands.append(Argument(form.results(residual), residual))
    return operands


def read_activation(epilogue: EpilogueArgument) -> Epilogue:
    """Return a chain of functions; operands are given by names of their own.

    Examples
    --------
    >>> str(read_activation("clip(0,1)")), str(read_activation(None))
    ('clip(0,1)', '')
    >>> read_activation("+k relu")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SpecError: epilogue '+k relu' of a convolution: '+k' takes an \
operand; give it as bias, batch_norm or residual
    """
    found = Epilogue.of(epilogue)
    for one in found.operations:
        if one.takes_operand:
            raise SpecError(
                f"epilogue {str(found)!r} of a convolution: {str(one)!r} takes an operand; "
                "give it as bias, batch_norm or residual"
            )
    return found


def as_operand(
    value: npt.ArrayLike, name: str, shape: tuple[int, ...], dtype: str, whose: str
) -> Array:
    """Return an array, if it is of a shape and a dtype.

    Examples
    --------
    >>> as_operand([1.0, 2.0], "bias", (3,), "float64", "x")
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: bias has the shape (2,), it must be (3,)
    """
    array = read_array(value, name)
    if array.shape != shape:
        raise SizeError(f"{name} has the shape {array.shape}, it must be {shape}")
    check_dtype(array, name, array_dtype(dtype), whose)
    return array


def result_array(out: Array | None, layer: Convolution, operands: dict[str, Array | None]) -> Array:
    """Return where a result goes: `out`, if it fits and shares no memory, or a new array."""
    if out is None:
        dtype = array_dtype(layer.dtype)
        if prod(layer.out_shape) * dtype.itemsize > sys.maxsize:
            told = f"{layer.out_shape}: more than memory can have"
            raise SizeError(f"padding and images give a result of the shape {told}")
        return new_result(layer.out_shape, dtype)
    return check_output(
        out,
        "out",
        layer.out_shape,
        dtype=array_dtype(layer.dtype),
        whose="the layer's dtype",
        operands={name: one for name, one in operands.items() if one is not None},
    )
