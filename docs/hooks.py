"""What mkdocs calls while it builds the site: patterns in the navigation become pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def on_config(config: Any) -> Any:  # noqa: ANN401 - mkdocs's own types, which users need not have
    """Replace each pattern of the navigation by the pages that match it and stand nowhere else."""
    config["nav"] = _expanded(config["nav"], _named(config["nav"]))
    return config


def _named(nav: list[Any]) -> set[str]:
    """Return the pages that the navigation names."""
    found: set[str] = set()
    for entry in nav:
        if isinstance(entry, dict):
            for pages in entry.values():
                found |= _named(pages if isinstance(pages, list) else [pages])
        else:
            found.add(entry)
    return found


def _expanded(nav: list[Any], named: set[str]) -> list[Any]:
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            for title, pages in entry.items():
                whole = isinstance(pages, list)
                found.append({title: _expanded(pages, named) if whole else pages})
        elif "*" in entry:
            pages = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob(entry))
            found += [page for page in pages if page not in named]
        else:
            found.append(entry)
    return found
