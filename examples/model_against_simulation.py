"""Compare the movement model with simulated caches, as docs/performance/simulation.md does.

Scaled-down contractions and convolutions run, access by access, through three fully associative
caches of 4, 16 and 128 KiB. For each of them the table has the lines of 64 bytes that the nests
of a problem missed together, what both reuse rules predicted, and each prediction over what
was simulated. A second table does not choose: matrix products with random tiles, orders and
packed copies. It takes some seconds; run it from a checkout.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/support"))

from simulation_cases import CASES, draw_nests, make_machine

from tilesolve.studies.misses import compare_misses


def main() -> None:
    toy = make_machine()
    chosen()
    print()
    print("Nests drawn at random, 40 matrix products: predicted over simulated misses.")
    print()
    print("| level | rule | least | median | most | within 10 % | under 0.9 |")
    print("| --- | --- | --: | --: | --: | --: | --: |")
    rows = [compare_misses(problem, nest, toy) for problem, nest in draw_nests(40, seed=7)]
    for level in zip(*rows, strict=True):
        for rule, ratios in (
            ("reuse distance", [row.ratio for row in level]),
            ("Listing 3", [row.ratio3 for row in level]),
        ):
            near = sum(abs(ratio - 1) <= 0.1 for ratio in ratios) / len(ratios)
            low = sum(ratio < 0.9 for ratio in ratios) / len(ratios)
            print(
                f"| {level[0].level} | {rule} | {min(ratios):.2f} | {median(ratios):.2f} "
                f"| {max(ratios):.2f} | {near:.0%} | {low:.0%} |"
            )


def chosen() -> None:
    toy = make_machine()
    print("Chosen nests, whose tiles leave space for what comes beside them: lines missed.")
    print()
    print("| problem | nests | level | simulated | reuse distance | ratio | Listing 3 | ratio |")
    print("| --- | --: | --- | --: | --: | --: | --: | --: |")
    for title, group in groupby(CASES, key=lambda case: case.title):
        nests = [compare_misses(case.problem, case.nest, toy) for case in group]
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
