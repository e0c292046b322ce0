"""Layers: convolutions whose weights stay, packed and planned once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.contractions.argument_kinds import read_flag
from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.convolution import Convolution, Form
from tilesolve.contractions.convolution_arguments import PaddingArgument
from tilesolve.contractions.epilogue import Epilogue, EpilogueArgument
from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.convolutions.batch_norm import BatchNorm, fold_batchnorm, read_reals
from tilesolve.convolutions.group_plans import Constants, GroupCall, GroupPlans
from tilesolve.convolutions.layer_plans import (
    LayerPlans,
    LayerRequest,
    as_operand,
    read_activation,
    result_array,
)
from tilesolve.machine.model import Machine
from tilesolve.nests.plan import NestPlan
from tilesolve.nests.task_writer import TaskWriter
from tilesolve.packing.memory_overlap import Array, same_elements
from tilesolve.plans.plan import Plan
from tilesolve.running.prepared import Prepared
from tilesolve.running.repeat_call import RepeatCall
from tilesolve.system.html_report import write_html_report


class ConvLayer:
    """A convolution layer: weights that are packed, and a plan; `conv_layer` makes one.

    ``print(layer)`` shows the plan that runs, and why. Pickles have the weights, and plan again
    where they are read.

    `weights` and `bias` contain the batch normalisation; `packs` says whether it is planned and
    weights are packed at once, for arrays in C order, or for the first ones that come. `flat` says
    whether pixels of these are one axis, where they may be; None if so.

    Examples
    --------
    >>> import numpy as np
    >>> import pickle
    >>> layer = conv_layer((1, 1, 4, 4), np.ones((1, 1, 3, 3)), padding=1, machine="i7-6700k")
    >>> copy = pickle.loads(pickle.dumps(layer))
    >>> copy(np.ones((1, 1, 4, 4)))[0, 0, 0].tolist()
    [4.0, 6.0, 6.0, 4.0]
    """

    __slots__ = (
        *("_bias", "_constants", "_flat", "_given", "_groups", "_packs", "_plans", "_prepared"),
        "_recent",
    )

    def __init__(
        self,
        request: LayerRequest,
        weights: Array,
        bias: Array | None,
        packs: bool = True,
        flat: bool | None = None,
    ) -> None:
        self._packs = packs
        self._plans = LayerPlans(request)
        self._bias = bias
        self._recent: RepeatCall | GroupCall | None = None
        self._given: Array | Callable[[], Array] | None = weights
        self._prepared: dict[tuple[bool, bool, bool], Prepared] = {}
        self._groups = GroupPlans.of(request)
        self._constants: Constants = {}
        self._flat = self.convolution.pointwise if flat is None else flat
        if self._groups is not None:
            self._constants = self._groups.plan.constants(weights, bias)
            return
        if packs:
            self._prepare(self._flat, *self._plans.made(self._flat))

    @property
    def convolution(self) -> Convolution:
        """Shapes and arguments."""
        return self._plans.request.convolution

    @property
    def _weights(self) -> Array:
        """The weights as they were given: no array but the one that a plan takes stays."""
        if self._given is not None:
            return self._given() if callable(self._given) else self._given
        (flat, *_), found = next(iter(self._prepared.items()))
        weights = np.empty(self.convolution.w_shape, found.array.dtype)
        self._plans.form(flat).filters(weights)[...] = found.array
        return weights

    @property
    def plan(self) -> Plan | NestPlan:
        """What runs for arrays in C order: statements for small groups, else a contraction."""
        if self._groups is not None:
            return self._groups.plan.nest
        return self._plans.made(self._flat)[1]

    @property
    def divides_sums(self) -> bool:
        """Whether threads divide sums, and one of them adds up what they found."""
        plan = self.plan
        return isinstance(plan, Plan) and bool(plan.solution.partial_outputs)

    @property
    def epilogue(self) -> Epilogue:
        """What follows the convolution, in the letters of its contraction."""
        return self._plans.chain(self._plans.form(self.convolution.pointwise), adds=False)

    @property
    def has_residual(self) -> bool:
        """Whether calls take a residual."""
        return self._plans.request.has_residual

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.convolution.out_shape

    @property
    def flops(self) -> int:
        """Floating-point operations of the convolution, zeros of the padding included."""
        return self.convolution.flops

    def __call__(
        self,
        x: npt.ArrayLike,
        out: npt.NDArray[Any] | None = None,
        residual: npt.ArrayLike | None = None,
    ) -> npt.NDArray[Any]:
        """Compute the layer: convolution, bias, residual, activation, in this order.

        Parameters
        ----------
        x
            The images, of the layer's shape and dtype; any strides, never modified.
        out
            Where the result goes; a new array if None. It may not share memory with `x`, nor with
            `residual` unless it is the same array.
        residual
            An array of the result's shape that is added before the activation, where the layer was
            made with ``residual=True``. It may be `out` itself: the first such call plans for that,
            and packs the weights once more.

        Returns
        -------
        numpy.ndarray
            `out`, or the new array.

        Raises
        ------
        SizeError
            If a shape is not the layer's.
        DtypeError
            If a dtype is not the layer's.
        PlanError
            If there is a residual and the layer has none, or the other way round; or if `out` is
            read-only or shares memory with an operand. Nothing has been written then.
        SolverError
            If the layer's strategy finds no plan for arrays with such strides.
        """
        recent = self._recent
        if recent is not None:
            given = (x,) if residual is None else (x, residual)
            done = recent.run(out, 1.0, 0.0, *given)
            if done is not None:
                return done
        return self._run(x, out, residual)

    def _run(
        self, x: npt.ArrayLike, out: npt.NDArray[Any] | None, residual: npt.ArrayLike | None
    ) -> npt.NDArray[Any]:
        """Compute a layer of arrays that were not looked at, and note what they are like."""
        images, added, target = self._look_at(x, out, residual)
        if self._groups is not None:
            found = self._groups.made(adds=added is target)
            found.run(images, self._constants, added, target)
            self._recent = GroupCall(self._groups.plan, self._constants, target.shape)
        else:
            arguments = self._line_up(images, added, target)
            self._plans.run(*arguments)
            self._recent = self._plans.recall(*arguments)
        return target if out is None else out

    def write(self, tasks: TaskWriter, x: Array, out: Array, residual: Array | None) -> bool:
        """Write down a call on arrays that stay where they are; return whether that can be done."""
        images, added, target = self._look_at(x, out, residual)
        if self._groups is not None:
            found = self._groups.made(adds=added is target)
            found.write(tasks, images, self._constants, added, target)
            return True
        return self._plans.write(tasks, *self._line_up(images, added, target))

    def _look_at(
        self, x: npt.ArrayLike, out: npt.NDArray[Any] | None, residual: npt.ArrayLike | None
    ) -> tuple[Array, Array | None, Array]:
        """Return images, residual and result of a call; the last two are one if they share all."""
        layer = self.convolution
        whose = "the layer's dtype"
        images = as_operand(x, "x", layer.x_shape, layer.dtype, whose)
        if (residual is not None) != self.has_residual:
            given, wanted = ("a", "without") if residual is not None else ("no", "with")
            raise PlanError(f"{given} residual is given to a layer that was made {wanted} one")
        added = None
        if residual is not None:
            added = as_operand(residual, "residual", layer.out_shape, layer.dtype, whose)
        adds = out is not None and added is not None and same_elements(np.asarray(out), added)
        target = result_array(out, layer, {"x": images, "residual": None if adds else added})
        return images, target if adds else added, target

    def _line_up(
        self, images: Array, added: Array | None, target: Array
    ) -> tuple[bool, Array, Prepared, Array | None, Array | None, Array]:
        """Return what `LayerPlans.run` takes."""
        adds = added is target
        flat = self._plans.is_flat(images, target, *(() if added is None else (added,)))
        weights = self._prepare(flat, *self._plans.made_for(flat, target, adds), adds)
        return flat, images, weights, self._bias, added, target

    def _prepare(self, flat: bool, form: Form, plan: Plan, adds: bool = False) -> Prepared:
        """Return the weights as a plan takes them."""
        key = flat, adds, plan.problem.aligned_output
        found = self._prepared.get(key)
        if found is None:
            prepare = plan.prepare if self._packs else plan.hold
            found = self._prepared[key] = prepare(form.filters(self._weights))
            self._given = None
        return found

    def release(self, weights: Callable[[], Array]) -> None:
        """Forget the weights: a call that needs them gets them by a function."""
        self._given = weights
        self._prepared.clear()
        self._recent = None

    @property
    def held_bytes(self) -> int:
        """Bytes of the weights as they are held: packed, as they were given, or both."""
        given = self._given.nbytes if isinstance(self._given, np.ndarray) else 0
        others = [one.held_bytes for one in self._prepared.values()]
        return given + sum(others) + sum(one.nbytes for one in self._constants.values())

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what pickles have: neither plans nor packed weights."""
        return self._plans.request, self._weights, self._bias

    def __setstate__(self, state: tuple[LayerRequest, Array, Array | None]) -> None:
        ConvLayer.__init__(self, *state)

    def __repr__(self) -> str:
        return f"<ConvLayer {self.convolution}>"

    def __str__(self) -> str:
        packed = sum(one.nbytes for one in self._prepared.values())
        return self._plans.request.report(self.plan, packed)

    def _repr_html_(self) -> str:
        return write_html_report(str(self))


def conv_layer(
    x_shape: Sequence[int],
    w: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: PaddingArgument = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    layout: str = "NCHW",
    batch_norm: BatchNorm | None = None,
    residual: bool = False,
    epilogue: EpilogueArgument = None,
    machine: Machine | str | None = None,
    threads: int | None = None,
    strategy: str = "solver",
    tries: int = 1,
) -> ConvLayer:
    """Plan a convolution layer and pack its weights, once for many calls.

    Parameters
    ----------
    x_shape
        Of the images, in the order of the layout, with one to three spatial dimensions.
    w
        The weights, in torch's order whatever the layout is: filters, channels of a group, window.
        In the layout ``"NCHWc"``: blocks of filters, blocks of channels, window, the channels and
        the filters of a block. They are copied: later changes of the array do not matter.
        Their dtype is the layer's.
    bias
        A number for each filter.
    stride, padding, dilation, groups
        As in torch. `padding` is a number, one for each dimension, pairs of before and after,
        ``"same"`` or ``"valid"``.
    layout
        ``"NCHW"``, ``"NHWC"`` or ``"NCHWc"``, whatever the number of dimensions is.
    batch_norm
        Gamma, beta, mean, variance and epsilon of a batch normalisation behind the convolution and
        its bias. It becomes part of weights and bias.
    residual
        Whether calls take an array like the result that is added before the activation.
    epilogue
        The activation: functions of one number, such as ``"relu"`` or ``"clip(0,1)"``, see
        `Epilogue.parse`, one of your own by `elementwise`, or a tuple of these.
    machine, threads, strategy, tries
        As in `plan`.

    Returns
    -------
    ConvLayer
        ``layer(x, out=y, residual=r)`` computes it, ``print(layer)`` explains it.

    Raises
    ------
    SizeError, SpecError, DtypeError
        If shapes and arguments do not fit.
    PlanError
        If the strategy has no plan for the layer.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.full((2, 1, 1, 1), [[[[1.0]]], [[[-1.0]]]])
    >>> layer = conv_layer((1, 1, 1, 3), weights, [0.5, 0.5], epilogue="relu", machine="i7-6700k")
    >>> layer(np.array([[[[1.0, 2.0, 3.0]]]])).tolist()
    [[[[1.5, 2.5, 3.5]], [[0.0, 0.0, 0.0]]]]
    """
    with_residual = read_flag(residual, "residual", PlanError)
    weights = read_array(w, "w")
    layer = Convolution.of(
        x_shape,
        weights.shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
        dtype=weights.dtype,
    )
    activation = read_activation(epilogue)
    shift = None
    if bias is not None:
        shift = as_operand(bias, "bias", (layer.filters,), layer.dtype, "w").copy()
    weights, shift = _fold(layer, weights, shift, batch_norm)
    request = LayerRequest(
        layer,
        activation,
        has_bias=shift is not None,
        has_residual=with_residual,
        machine=machine,
        threads=threads,
        strategy=strategy,
        tries=tries,
    )
    return ConvLayer(request, weights, shift)


def _fold(
    layer: Convolution, weights: Array, bias: Array | None, batch_norm: BatchNorm | None
) -> tuple[Array, Array | None]:
    """Return a copy of the weights and the bias, with a batch normalisation in them."""
    if batch_norm is None:
        return weights.copy(), bias
    if not isinstance(batch_norm, list | tuple) or not batch_norm:
        raise PlanError(f"batch_norm is a tuple of arrays and eps, got {batch_norm!r}")
    *parts, eps = batch_norm
    names = ("gamma", "beta", "mean", "var")
    if len(parts) != len(names):
        raise PlanError(f"batch_norm is {', '.join(names)} and eps, got {len(parts) + 1} values")
    gamma, beta, mean, var = (
        as_operand(read_reals(part, name).astype(np.float64), name, (layer.filters,), "float64", "")
        for name, part in zip((f"{name} of batch_norm" for name in names), parts, strict=True)
    )
    scale, shift = fold_batchnorm(gamma, beta, mean, var, eps)
    if bias is not None:
        shift = shift + bias * scale
    if layer.layout == "NCHWc":
        factors = scale.reshape(-1, *(1,) * (weights.ndim - 2), layer.blocks[1])
    else:
        factors = scale.reshape(-1, *(1,) * (weights.ndim - 1))
    dtype = array_dtype(layer.dtype)
    return (weights * factors).astype(dtype), shift.astype(dtype)
