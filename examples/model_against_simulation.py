"""Compare the movement model with simulated caches, as the README's table does.

Scaled-down contractions and convolutions run, access by access, through three fully associative
caches of 4, 16 and 128 KiB. For each of them the table has the lines of 64 bytes that the nests
of a problem missed together, what both reuse rules predicted, and each prediction over what
was simulated. It takes a few seconds; run it from a checkout.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.simulation_cases import CASES, compare, machine


def main() -> None:
    toy = machine()
    print("| problem | nests | level | simulated | reuse distance | ratio | Listing 3 | ratio |")
    print("| --- | --: | --- | --: | --: | --: | --: | --: |")
    for title, group in groupby(CASES, key=lambda case: case.title):
        nests = [compare(case.problem, case.nest, toy) for case in group]
        for level in zip(*nests, strict=True):
            simulated = sum(sum(row.simulated) for row in level)
            distance = sum(sum(row.distance) for row in level)
            listing3 = sum(sum(row.listing3) for row in level)
            print(
                f"| {title} | {len(nests)} | {level[0].level} | {simulated} "
                f"| {distance:.0f} | {distance / simulated:.2f} "
                f"| {listing3:.0f} | {listing3 / simulated:.2f} |"
            )


if __name__ == "__main__":
    main()
