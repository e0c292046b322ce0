"""``tilesolve learn``: a ranker from measured variants, and what is printed of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def learn(
    files: Annotated[
        list[Path],
        typer.Argument(help="What `bench SUITE --study ranking --json` or `rank --json` wrote."),
    ],
    seed: Annotated[
        int, typer.Option(min=0, help="Of the network: the same one learns the same.")
    ] = 1,
) -> None:
    """Learn to rank from measured variants; keep what ranks better than the price.

    Each problem is left out once, and judges what was learned from the others.

    Example: $ tilesolve learn gemm.json
    """
    from tilesolve.machine.places import check_place
    from tilesolve.ranking.learning.judging import Judgement, judge
    from tilesolve.ranking.learning.learned import keep_learned, learned_file
    from tilesolve.ranking.learning.teaching import describe, list_rows, teach
    from tilesolve.show.console_tables import console, progress_bar
    from tilesolve.studies.trial_files import read_trials
    from tilesolve.system.files import hold_lock
    from tilesolve.system.tables import Table
    from tilesolve.system.trust import check_folder

    target = learned_file()
    check_place(target)
    check_folder(target.parent)
    suite, trials = read_trials(files)
    with progress_bar("learning") as tell:
        found: Judgement = judge(trials, seed, tell)
    columns = {"problem": "left"} | dict.fromkeys(found.figures, "right")
    screen = console()
    title = f"{suite}: regret of the first, of the best of five, rank correlation"
    screen.print(Table(title, columns, list_rows(found)))
    screen.print(*describe(found, trials), sep="\n")
    if not found.gains:
        screen.print("nothing is kept")
        return
    with hold_lock(target):
        keep_learned(teach(found.learned, suite, trials, seed))
    screen.print(f"saved in {target}: rank by 'learned'")
