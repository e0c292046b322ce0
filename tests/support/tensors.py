"""A tensor of another library, as far as anybody here needs to know: it exports its memory."""

import numpy as np


class Tensor:
    """Wraps an array; `device` and flags say what a library could say of it."""

    def __init__(self, array, device=(1, 0), **flags):
        self.array, self.place = array, device
        self.shape, self.dtype = array.shape, array.dtype
        for name, value in flags.items():
            setattr(self, name, value)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.place


class Older(Tensor):
    """Exports as the first version of DLPack does, which cannot tell what is read-only."""

    def __dlpack__(self):
        return self.array.__dlpack__()


class Failing(Tensor):
    """Raises an error of its library's own kind."""

    def __dlpack__(self, **options):
        raise RuntimeError("the storage is gone")


def ones(*shape, dtype="float64", **flags):
    """A tensor of ones."""
    return Tensor(np.ones(shape, dtype), **flags)
