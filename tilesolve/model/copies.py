"""Copies: what micro-panels hold of a tensor.

A micro-panel has each sum of each row. So it repeats what windows share, and what does not depend
on a sum. All other copies have each element once, as arrays do.
"""

from __future__ import annotations

from functools import lru_cache

from tilesolve.contractions.roles import Roles
from tilesolve.contractions.spec import Spec, Subscript, Tensor


@lru_cache(maxsize=512)
def panel_tensor(spec: Spec, tensor: int) -> Tensor:
    """Return an operand as micro-panels hold it: one axis for each of its letters and of the sums.

    Examples
    --------
    >>> str(panel_tensor(Spec.parse("hk-[h+r]c-rck"), 1))
    'hrc'
    >>> str(panel_tensor(Spec.parse("ij-ik-kjl"), 1))
    'ikl'
    """
    own = spec.tensors[tensor].letters
    letters = (*own, *(i for i in Roles.of_spec(spec).sums if i not in own))
    return Tensor(tuple(Subscript(((1, letter),)) for letter in letters))


@lru_cache(maxsize=512)
def repeats_elements(spec: Spec, tensor: int) -> bool:
    """Return whether micro-panels hold elements of an operand more than once.

    Only contractions of two operands have micro-panels.

    Examples
    --------
    >>> spec = Spec.parse("hk-[h+r]c-rck")
    >>> repeats_elements(spec, 1), repeats_elements(spec, 2)
    (True, False)
    """
    if len(spec.operands) != 2:
        return False
    own = spec.tensors[tensor]
    shared = sum(len(s.terms) for s in own.subscripts) != len(own.subscripts)
    return shared or set(panel_tensor(spec, tensor).letters) != set(own.letters)
