"""Figures of a fine-tuning, as tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets

from .data import FILE, ROW

PREDICTION = "prediction"  # the column that `save_predictions` adds


def print_table(title: str, rows: Mapping[str, Mapping[str, float | str]]) -> None:
    """Print metrics (columns) of splits or models (rows); where there are many metrics, one a row."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    if len(columns) > 8:
        rows = {metric: {name: row.get(metric, "") for name, row in rows.items()} for metric in columns}
        columns = list(next(iter(rows.values())))
    width = max(map(len, rows), default=0)
    cells = {name: [_cell(row.get(column, "")) for column in columns] for name, row in rows.items()}
    widths = [max(map(len, column)) for column in zip(columns, *cells.values())]
    print(f"\n{title}")
    for name, row in {"": columns, **cells}.items():
        print(f"  {name:{width}}" + "".join(f"  {cell:>{cell_width}}" for cell, cell_width in zip(row, widths)))


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"


def mean_and_deviation(reports: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[str, tuple[float, float]]]:
    """Mean and sample deviation over seeds of every metric of every split."""
    first = next(iter(reports.values()))
    values = {
        name: {metric: [report[name][metric] for report in reports.values()] for metric in scores}
        for name, scores in scores_of(first).items()
    }
    return {
        name: {metric: (statistics.mean(found), statistics.stdev(found)) for metric, found in metrics.items()}
        for name, metrics in values.items()
    }


def scores_of(report: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The metrics of every split of a report."""
    return {name: report[name] for name in ("validation", "test") if name in report}


def save_predictions(rows: datasets.Dataset, predictions: Sequence[Any], path: Path) -> None:
    """Write JSON lines: the rows as they were given, each with what was predicted for it."""
    given = rows.remove_columns([FILE, ROW])
    with path.open("w", encoding="utf-8") as file:
        for row, predicted in zip(given, predictions):
            # what JSON does not know (dates, pictures) as Python shows it
            file.write(json.dumps({**row, PREDICTION: predicted}, ensure_ascii=False, default=str) + "\n")
