"""Schemes: loop structures as TTile writes them (section 4 of hal-03149553), outermost first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tilesolve.contractions.errors import PlanError, SizeError


@dataclass(frozen=True, slots=True)
class Rest:
    """`R,d`: the loop over all that is left of a letter."""

    letter: str


@dataclass(frozen=True, slots=True)
class Tile:
    """`T4,d`: a loop of exactly so many iterations."""

    trips: int
    letter: str


@dataclass(frozen=True, slots=True)
class Unrolled:
    """`U4,d` or `Uα,d`: a loop in registers; a name stands for the sizes that a λ lists."""

    trips: int | str
    letter: str


@dataclass(frozen=True, slots=True)
class Vector:
    """`Vd`: the letter that vectors lie along."""

    letter: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """`λd α.[(2,11),(1,12)]`: loops one after the other; in the n-th, `α` is its second number."""

    letter: str
    name: str
    loops: tuple[tuple[int, int], ...]


Specifier = Rest | Tile | Unrolled | Vector | Sequence


_FORMS = (
    r"R,?(?P<rest>\w)"
    r"|T(?P<trips>\d+),(?P<tile>\w)"
    r"|U(?P<unroll>\d+|[^\W\d_]),(?P<unrolled>\w)"
    r"|V,?(?P<vector>\w)"
    r"|λ(?:seq)?(?P<sequence>\w)(?P<name>[^\W\d_])\.\[(?P<list>\(\d+,\d+\)(?:,\(\d+,\d+\))+)\]"
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A loop structure, outermost specifier first.

    Examples
    --------
    >>> scheme = Scheme.of("[Rj, λseqi α.[(12,6),(8,7)], T64,k, Uα,i, U2,j, Vj]")
    >>> print(scheme)
    [Rj,λi α.[(12,6),(8,7)],T64,k,Uα,i,U2,j,Vj]
    >>> scheme.covered({"i": 128, "j": 128, "k": 64}, 8)
    {'i': 128, 'j': 128, 'k': 64}
    """

    specifiers: tuple[Specifier, ...]

    @classmethod
    def of(cls, text: str) -> Scheme:
        """Read a scheme as it is printed; spaces, and `seq` after `λ`, may be there or not.

        Raises
        ------
        PlanError
            If it is not a list of specifiers, or these contradict each other.
        """
        packed = re.sub(r"\s", "", text)
        if not (packed.startswith("[") and packed.endswith("]")):
            raise PlanError(f"a scheme is a list in brackets, got {text!r}")
        forms, inner, found, at = re.compile(_FORMS), packed[1:-1], [], 0
        while at < len(inner):
            match = forms.match(inner, at)
            end = match.end() if match else at
            if match is None or inner[end : end + 1] not in ("", ",") or inner[end:] == ",":
                raise PlanError(f"scheme {text!r}: no specifier begins {inner[at:]!r}")
            found.append(_read(match))
            at = end + 1
        scheme = cls(tuple(found))
        scheme.check()
        return scheme

    def __repr__(self) -> str:
        return f"Scheme.of({str(self)!r})"

    def __str__(self) -> str:
        return f"[{','.join(map(print_specifier, self.specifiers))}]"

    def check(self) -> None:
        """Raise an error unless the specifiers can stand together.

        Raises
        ------
        PlanError
            If a count is less than 1, `V` is not the last or not alone, a letter has two `R`, or
            a name is used without one λ of the same letter around it, or not at all.
        """
        kinds = self.specifiers
        vectors = [at for at, one in enumerate(kinds) if isinstance(one, Vector)]
        if vectors not in ([], [len(kinds) - 1]):
            raise PlanError(f"scheme {self}: V stands once at most, and innermost")
        rests = [one.letter for one in kinds if isinstance(one, Rest)]
        twice = sorted({letter for letter in rests if rests.count(letter) > 1})
        if twice:
            raise PlanError(f"scheme {self}: more than one R of {', '.join(twice)}")
        counts = [_count(one) for one in kinds]
        if any(count < 1 for group in counts for count in group):
            raise PlanError(f"scheme {self}: a loop has at least one iteration")
        bound: dict[str, str] = {}
        used: set[str] = set()
        for one in kinds:
            if isinstance(one, Sequence):
                if one.name in bound:
                    raise PlanError(f"scheme {self}: two λ define {one.name}")
                bound[one.name] = one.letter
            elif isinstance(one, Unrolled) and isinstance(one.trips, str):
                if bound.get(one.trips) != one.letter or one.trips in used:
                    raise PlanError(
                        f"scheme {self}: U{one.trips},{one.letter} needs one λ of {one.letter} "
                        f"around it that defines {one.trips} for it alone"
                    )
                used.add(one.trips)
        if set(bound) - used:
            raise PlanError(f"scheme {self}: {min(set(bound) - used)} is defined but not used")

    def covered(self, sizes: Mapping[str, int], lanes: int) -> dict[str, int]:
        """Return what the scheme covers of each letter, given extents for its `R`.

        Parameters
        ----------
        sizes
            The extents.
        lanes
            Iterations that a vector holds.

        Raises
        ------
        SizeError
            If it covers another part of a letter than its extent, or a letter is unknown.
        """
        self.check_letters(sizes)
        inner = self.factors(sizes, lanes)
        for one in self.specifiers:
            if isinstance(one, Rest):
                inner[one.letter] *= max(1, sizes[one.letter] // inner[one.letter])
        for letter, extent in sizes.items():
            if inner[letter] != extent:
                raise SizeError(
                    f"scheme {self} covers {inner[letter]} of {letter!r}, whose extent is {extent}"
                )
        return inner

    def check_letters(self, letters: Iterable[str]) -> None:
        """Raise an error unless a spec has all letters of the scheme.

        Raises
        ------
        SizeError
            If a letter is unknown.
        """
        unknown = sorted({one.letter for one in self.specifiers} - set(letters))
        if unknown:
            raise SizeError(f"scheme {self}: {', '.join(unknown)} is no letter of the spec")

    def factors(self, letters: Iterable[str], lanes: int) -> dict[str, int]:
        """Return what all specifiers but `R` multiply to, for each letter.

        Examples
        --------
        >>> Scheme.of("[Ri,T3,j,U2,j,Vj]").factors("ij", 8)
        {'i': 1, 'j': 48}
        """
        found = dict.fromkeys(letters, 1)
        for one in self.specifiers:
            found[one.letter] *= _factor(one, lanes)
        return found

    def rename(self, letters: Mapping[str, str]) -> Scheme:
        """Return the scheme with other letters.

        Examples
        --------
        >>> print(Scheme.of("[λi α.[(1,6),(2,7)],Uα,i,Vj]").rename({"i": "a", "j": "b"}))
        [λa α.[(1,6),(2,7)],Uα,a,Vb]
        """
        return Scheme(tuple(replace(one, letter=letters[one.letter]) for one in self.specifiers))


def print_specifier(one: Specifier) -> str:
    """Return a specifier's text.

    Examples
    --------
    >>> print_specifier(Tile(4, "k"))
    'T4,k'
    """
    match one:
        case Rest(letter):
            return f"R{letter}"
        case Tile(trips, letter):
            return f"T{trips},{letter}"
        case Unrolled(count, letter):
            return f"U{count},{letter}"
        case Vector(letter):
            return f"V{letter}"
        case Sequence(letter, name, loops):
            pairs = ",".join(f"({trips},{size})" for trips, size in loops)
            return f"λ{letter} {name}.[{pairs}]"


def _read(match: re.Match[str]) -> Specifier:
    """Return the specifier of a text."""
    part = match.groupdict()
    if part["rest"]:
        return Rest(part["rest"])
    if part["tile"]:
        return Tile(int(part["trips"]), part["tile"])
    if part["unrolled"]:
        count = part["unroll"]
        return Unrolled(int(count) if count.isdecimal() else count, part["unrolled"])
    if part["vector"]:
        return Vector(part["vector"])
    pairs = re.findall(r"\((\d+),(\d+)\)", part["list"])
    loops = tuple((int(trips), int(size)) for trips, size in pairs)
    return Sequence(part["sequence"], part["name"], loops)


def _count(one: Specifier) -> tuple[int, ...]:
    """Return all numbers of a specifier."""
    match one:
        case Tile(trips, _):
            return (trips,)
        case Unrolled(int(trips), _):
            return (trips,)
        case Sequence(_, _, loops):
            return tuple(number for loop in loops for number in loop)
    return ()


def _factor(one: Specifier, lanes: int) -> int:
    """Return by how much a specifier multiplies what is covered of its letter."""
    match one:
        case Tile(trips, _):
            return trips
        case Unrolled(int(trips), _):
            return trips
        case Vector(_):
            return lanes
        case Sequence(_, _, loops):
            return sum(trips * size for trips, size in loops)
    return 1
