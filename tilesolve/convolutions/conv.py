"""One convolution of arrays; what shapes and arguments decide is kept for the next one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilesolve.constants.tuning import MAX_KEPT_CONVOLUTIONS
from tilesolve.contractions.arrays import read_array
from tilesolve.contractions.convolution import Convolution
from tilesolve.contractions.convolution_arguments import PaddingArgument
from tilesolve.contractions.epilogue import EpilogueArgument
from tilesolve.contractions.half_precision import array_dtype
from tilesolve.convolutions.group_plans import GroupPlans
from tilesolve.convolutions.layer_plans import (
    LayerPlans,
    LayerRequest,
    as_operand,
    read_activation,
    result_array,
)
from tilesolve.system.checks import check_dtype, check_threads
from tilesolve.system.files import read_setting


def conv(
    x: npt.ArrayLike,
    w: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: PaddingArgument = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    layout: str = "NCHW",
    epilogue: EpilogueArgument = None,
    out: npt.NDArray[Any] | None = None,
    threads: int | None = None,
) -> npt.NDArray[Any]:
    """Convolve images with filters, as neural networks do, in one to three spatial dimensions.

    The weights are packed in each call: where they stay the same, `conv_layer` is faster.

    Parameters
    ----------
    x
        The images, in the order of the layout; any strides, never modified.
    w
        The weights, in torch's order whatever the layout is: filters, channels of a group, window.
        In the layout ``"NCHWc"``: blocks of filters, blocks of channels, window, the channels and
        the filters of a block. Any strides.
    bias
        A number for each filter.
    stride, padding, dilation, groups
        As in torch. `padding` is a number, one for each dimension, pairs of before and after,
        ``"same"`` or ``"valid"``.
    layout
        ``"NCHW"``, ``"NHWC"`` or ``"NCHWc"``, whatever the number of dimensions is.
    epilogue
        The activation: functions of one number, such as ``"relu"`` or ``"clip(0,1)"``, see
        `Epilogue.parse`, one of your own by `elementwise`, or a tuple of these.
    out
        Where the result goes; a new array if None. It may share no memory with an operand.
    threads
        Cores that share the work, as in `plan`.

    Returns
    -------
    numpy.ndarray
        `out`, or the new array.

    Raises
    ------
    SizeError, SpecError, DtypeError, PlanError
        If arrays and arguments do not fit; nothing has been written then.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.arange(16.0).reshape(1, 1, 4, 4)
    >>> conv(image, np.ones((1, 1, 2, 2)), stride=2)[0, 0].tolist()
    [[10.0, 18.0], [42.0, 50.0]]
    >>> conv(image, np.ones((1, 2, 2, 2)))
    Traceback (most recent call last):
        ...
    tilesolve.contractions.errors.SizeError: w has 2 channels (shape (1, 2, 2, 2)), but x has 1 \
in 1 groups (shape (1, 1, 4, 4), NCHW)
    """
    shared = None if threads is None else check_threads(threads)
    images, weights = read_array(x, "x"), read_array(w, "w")
    plans, statements = _plans(
        images.shape,
        weights.shape,
        bias is not None,
        _frozen(epilogue),
        shared,
        read_setting("TILESOLVE_NUM_THREADS"),
        read_setting("TILESOLVE_MACHINE"),
        stride=_frozen(stride),
        padding=_frozen(padding),
        dilation=_frozen(dilation),
        groups=_frozen(groups),
        layout=_frozen(layout),
        dtype=images.dtype,
    )
    layer = plans.request.convolution
    check_dtype(weights, "w", array_dtype(layer.dtype), "x")
    shift = None
    if bias is not None:
        shift = as_operand(bias, "bias", (layer.filters,), layer.dtype, "x")
    target = result_array(out, layer, {"x": images, "w": weights, "bias": shift})
    if statements is not None:
        found = statements.plan
        found.run(images, found.constants(weights, shift), None, target)
    else:
        flat = plans.is_flat(images, target)
        filters = plans.form(flat).filters(weights)
        if layer.depthwise:  # these are few, and vectors lie along them
            filters = np.ascontiguousarray(filters)
        plans.run(flat, images, filters, shift, None, target)
    return target if out is None else out


def forget_convolutions() -> None:
    """Forget what earlier calls of `conv` left: the next one of each kind is planned anew."""
    _plans.cache_clear()


def _frozen(value: Any) -> Hashable:  # noqa: ANN401 - numbers, lists of numbers, or text
    """Return an argument as a value that can be a key."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str) or not np.iterable(value):
        return value
    return tuple(map(_frozen, value))


@lru_cache(maxsize=MAX_KEPT_CONVOLUTIONS, typed=True)
def _plans(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    has_bias: bool,
    epilogue: EpilogueArgument,
    threads: int | None,
    *_settings: str | None,
    **arguments: Any,  # noqa: ANN401 - as `Convolution.of` takes them
) -> tuple[LayerPlans, GroupPlans | None]:
    """Return the plans for such arrays and arguments, in a process with such settings."""
    layer = Convolution.of(x_shape, w_shape, **arguments)
    activation = read_activation(epilogue)
    request = LayerRequest(layer, activation, has_bias=has_bias, threads=threads, constant=False)
    return LayerPlans(request), GroupPlans.of(request)
