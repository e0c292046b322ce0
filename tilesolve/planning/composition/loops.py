"""Schemes as the kernels run them: a register tile, what a call sums, and bands of loops around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from tilesolve.contractions.errors import PlanError
from tilesolve.contractions.roles import COLUMNS, ROWS, SUMS, Roles
from tilesolve.planning.composition.scheme import (
    Rest,
    Scheme,
    Sequence,
    Specifier,
    Tile,
    Unrolled,
    Vector,
)

Band = tuple[tuple[str, int], ...]
"""Loops from the innermost on: letters, and the sides of their tiles after the loop."""


@dataclass(frozen=True, slots=True)
class Loops:
    """What a scheme says of a share.

    Parameters
    ----------
    vector
        The letter that vectors lie along; None if the scheme has no `V`.
    register
        The loops of a call with their sides: of the register tile, then those over sums.
    bands
        The bands around it, innermost first.
    cells
        For letters under a λ, all register tiles in order.
    """

    vector: str | None
    register: Band
    bands: tuple[Band, ...]
    cells: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, scheme: Scheme, roles: Roles, lanes: int) -> Loops:
        """Return a scheme without `R` as bands.

        `U` of a sum is a loop: calls sum over all that is inside of the first loop over a letter
        of C. So is `U` of a batch, and one around such a loop. Loops of one iteration are none. In
        a band each letter has one loop, and loops of a role follow each other, as they are run
        together.

        Examples
        --------
        >>> scheme = Scheme.of("[T3,j,T4,k,T2,i,T8,k,U6,i,U2,j,Vj]")
        >>> found = Loops.of(scheme, Roles(("j",), ("i",), ("k",), ()), 4)
        >>> found.register, found.bands
        ((('j', 8), ('i', 6), ('k', 8)), ((('i', 12), ('k', 32), ('j', 24)),))
        """
        maker = _Maker(roles, lanes)
        for one in reversed(scheme.specifiers):
            maker.add(one)
        names = {one.letter: one for one in scheme.specifiers if isinstance(one, Sequence)}
        cells = tuple((letter, maker.cells_of(one, scheme)) for letter, one in names.items())
        return cls(
            next((one.letter for one in scheme.specifiers if isinstance(one, Vector)), None),
            tuple(maker.register.items()),
            tuple(tuple(band.items()) for band in maker.bands),
            cells,
        )

    def side(self, letter: str) -> int:
        """Return the side of a letter in a call."""
        return dict(self.register).get(letter, 1)

    def tile(self, letters: Iterable[str]) -> int:
        """Return the iterations of some letters in a call."""
        return prod(self.side(letter) for letter in letters)


class _Maker:
    """Bands in the making, from the innermost specifier on."""

    def __init__(self, roles: Roles, lanes: int) -> None:
        self.roles, self.lanes = roles, lanes
        self.sides: dict[str, int] = {}
        self.register: dict[str, int] = {}
        self.bands: list[dict[str, int]] = []
        self.names: dict[str, int] = {}

    def add(self, one: Specifier) -> None:
        """Take in the next specifier."""
        match one:
            case Vector(letter):
                self._unroll(letter, self.lanes)
            case Unrolled(str(), letter):
                # The largest one: λ multiplies by what follows each other.
                self.names[letter] = self.sides.get(letter, 1)
                self._unroll(letter, 1)
            case Unrolled(int(trips), letter):
                tile = not self.bands and self.roles.number(letter) in (ROWS, COLUMNS)
                (self._unroll if tile else self._loop)(letter, trips)
            case Sequence(letter, _, loops):
                largest = max(size for _, size in loops)
                self._grow(letter, largest)
                whole = sum(trips * size for trips, size in loops)
                self._around(letter, self.sides[letter] // largest * whole)
            case Tile(trips, letter):
                self._loop(letter, trips)

    def cells_of(self, one: Sequence, scheme: Scheme) -> tuple[int, ...]:
        """Return the register tiles under a λ."""
        at = scheme.specifiers.index(one)
        inner = [s for s in scheme.specifiers[at + 1 :] if s.letter == one.letter]
        repeats = prod(s.trips for s in inner if isinstance(s, Tile))
        unit = self.names[one.letter]
        return tuple(size * unit for trips, size in one.loops for _ in range(trips * repeats))

    def _unroll(self, letter: str, trips: int) -> None:
        self.sides[letter] = self.sides.get(letter, 1) * trips
        self.register[letter] = self.sides[letter]

    def _grow(self, letter: str, times: int) -> None:
        """Multiply all tiles of a letter by the largest size of its register tile."""
        self.sides[letter] *= times
        for band in (self.register, *self.bands):
            if letter in band:
                band[letter] *= times

    def _loop(self, letter: str, trips: int) -> None:
        if trips > 1:
            self._around(letter, self.sides.get(letter, 1) * trips)

    def _around(self, letter: str, side: int) -> None:
        self.sides[letter] = side
        role = self.roles.number(letter)
        if role == SUMS and not self.bands and letter not in self.register:
            self.register[letter] = side
            return
        if not self.bands or not self._joins(role, letter):
            self.bands.append({})
        self.bands[-1][letter] = side

    def _joins(self, role: int, letter: str) -> bool:
        """Return whether a loop may be part of the outermost band."""
        band = list(self.bands[-1])
        roles = [self.roles.number(other) for other in band]
        return letter not in band and (role not in roles or roles[-1] == role)


def without_rest(scheme: Scheme, sizes: Mapping[str, int], lanes: int) -> Scheme:
    """Return a scheme with `T` in place of `R`, checked to cover all extents.

    Raises
    ------
    SizeError
        If it does not cover them.

    Examples
    --------
    >>> print(without_rest(Scheme.of("[Ri,Rj,U2,j,Vj]"), {"i": 3, "j": 24}, 4))
    [T3,i,T3,j,U2,j,Vj]
    """
    scheme.covered(sizes, lanes)
    others = Scheme(tuple(one for one in scheme.specifiers if not isinstance(one, Rest)))
    inner = others.factors(sizes, lanes)
    found = (
        Tile(sizes[one.letter] // inner[one.letter], one.letter) if isinstance(one, Rest) else one
        for one in scheme.specifiers
    )
    return Scheme(tuple(found))


def divide(
    scheme: Scheme, output: Iterable[str], threads: int, sums: Iterable[str] = ()
) -> tuple[str | None, Scheme]:
    """Return the letter that threads divide, and the scheme of one thread's share.

    It is the letter of the outermost `T` over a letter of C whose iterations they divide evenly;
    or that of the scheme's first loop, if it is over one of some sums and has one iteration for
    each thread.

    Raises
    ------
    PlanError
        If there is none.

    Examples
    --------
    >>> letter, share = divide(Scheme.of("[T3,i,T4,j,Vj]"), "ij", 2)
    >>> letter, str(share)
    ('j', '[T3,i,T2,j,Vj]')
    >>> letter, share = divide(Scheme.of("[T2,k,T4,j,T8,k,Vj]"), "j", 2, "k")
    >>> letter, str(share)
    ('k', '[T4,j,T8,k,Vj]')
    """
    if threads == 1:
        return None, scheme
    first, *inner = scheme.specifiers
    if isinstance(first, Tile) and first.letter in set(sums) and first.trips == threads:
        return first.letter, Scheme(tuple(inner))
    letters, around = set(output), set()
    for at, one in enumerate(scheme.specifiers):
        outermost = one.letter in letters and one.letter not in around
        if outermost and isinstance(one, Tile) and one.trips % threads == 0:
            share = list(scheme.specifiers)
            share[at] = replace(one, trips=one.trips // threads)
            return one.letter, Scheme(tuple(share))
        around.add(one.letter)
    raise PlanError(
        f"scheme {scheme}: {threads} threads divide the iterations of no outermost loop over "
        f"{', '.join(sorted(letters))}"
    )
