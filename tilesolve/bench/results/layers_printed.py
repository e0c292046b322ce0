"""A sweep of layers on the console."""

from __future__ import annotations

from tilesolve.bench.results.layer_sweeps import LayerSweep
from tilesolve.bench.results.layer_tables import (
    LAYER_UNITS,
    MODEL_COLUMNS,
    list_layer_columns,
    list_layer_means,
    list_layer_notes,
    list_layer_rows,
    list_model_rows,
)
from tilesolve.bench.results.summary import list_facts
from tilesolve.show.console_tables import console, text_table


def print_layers(sweep: LayerSweep) -> None:
    """Print where a sweep comes from, its layers and networks, means and notes."""
    screen = console()
    for what, value in list_facts(sweep).items():
        screen.print(f"{what}: {value}")
    for label in sweep.conditions.contenders.values():
        screen.print(f"- {label}")
    screen.print(text_table("", list_layer_columns(sweep), list_layer_rows(sweep), LAYER_UNITS))
    screen.print(text_table("", MODEL_COLUMNS, list_model_rows(sweep)))
    means = list_layer_means(sweep).items()
    screen.print(text_table("", {"geometric means": "left", "": "left"}, means))
    for note in list_layer_notes(sweep):
        screen.print(note)
