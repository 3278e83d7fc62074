"""The results as text and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

LENGTH_CELLS = "infer-length-"
HEADER = ("cell", "entry", "median", "minimum", "tokens/s", "MFU", "ratio of medians (minima)", "wanted")


def summary(result: dict) -> str:
    """What a cell gave, in a few lines: MiniBERT's backend and why, then every entry."""
    if "error" in result:
        return f"{result['cell']}: FAILED: {result['error']}"
    rounds = f", {result['rounds']} rounds" if result["rounds"] > 1 else ""
    lines = [f"{result['cell']}: {result['what']}{rounds}"]
    if result["tokens"]:
        padded = f" in {result['places']} places" if (result["places"] or 0) > result["tokens"] else ""
        lines.append(f"  {result['tokens']} tokens{padded}")
    lines += [f"  MiniBERT's {kind}: {backend}" for kind, backend in result["backend"].items()]
    for _, name, *values in rows(result):
        named = (f"{title} {value}" for title, value in zip(HEADER[2:], values) if value)
        lines.append(f"  {name}: {', '.join(named)}")
    return "\n".join(lines)


def rows(result: dict) -> list[tuple[str, ...]]:
    """The cells under `HEADER`, one row an entry. A ratio stands beside its numerator."""
    if "error" in result:
        return [(result["cell"], f"FAILED: {result['error']}", *[""] * 6)]
    found = []
    for name, entry in result["measured"].items():
        amounts = (_amount(entry[key], result["measure"]) for key in ("median", "min"))
        speed = f"{entry['tokens_per_second']:,.0f}" if "tokens_per_second" in entry else ""
        share = f"{entry['mfu']:.1%}" if "mfu" in entry else ""
        compared = next((ratio for ratio in result["ratios"] if ratio["numerator"] == name), None)
        ratio = compared and f"{compared['median']:.2f}× ({compared['min']:.2f}×) {compared['denominator']}"
        found.append((result["cell"], name, *amounts, speed, share, ratio or "", _wanted(compared)))
    failed = [(result["cell"], f"{name}: FAILED: {reason}", *[""] * 6) for name, reason in result["failed"].items()]
    return found + failed


def _amount(value: float, measure: str) -> str:
    if measure == "bytes":
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"


def _wanted(ratio: dict | None) -> str:
    if ratio is None or ratio["reached"] is None:
        return ""
    bound = f"≥ {ratio['at_least']:g}×" if ratio["at_least"] is not None else f"≤ {ratio['at_most']:g}×"
    return f"{bound} {'reached' if ratio['reached'] else 'MISSED'}"


def table(results: Sequence[dict]) -> str:
    """All results as a Markdown table with aligned columns."""
    lines = [HEADER, *(row for result in results for row in rows(result))]
    lines = [tuple(cell.replace("|", "/") for cell in line) for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines)]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths))} |" for line in lines)


def draw(results: Sequence[dict], path: Path) -> bool:
    """Time of one text against its length, one panel a precision, as PNG; False if there are no such results."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = [result for result in results if result["cell"].startswith(LENGTH_CELLS) and result.get("measured")]
    precisions = list(dict.fromkeys(result["dtype"] for result in results))
    if not precisions:
        return False
    figure = Figure(figsize=(5.5 * len(precisions), 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(precisions), sharey=True, squeeze=False)[0]
    for precision, panel in zip(precisions, panels):
        chosen = [result for result in results if result["dtype"] == precision]
        for name in dict.fromkeys(name for result in chosen for name in result["measured"]):
            points = sorted(
                (result["tokens"], result["measured"][name]) for result in chosen if name in result["measured"]
            )
            lengths = [length for length, _ in points]
            panel.plot(lengths, [entry["median"] for _, entry in points], marker="o", markersize=4, label=name)
            panel.fill_between(
                lengths,
                [entry["min"] for _, entry in points],
                [max(entry["samples"]) for _, entry in points],
                alpha=0.2,
            )
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(lengths, lengths)
        panel.set_xlabel("tokens of the text")
        panel.set_title(precision)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("seconds a forward pass (median; band: all rounds)")
    panels[0].legend(frameon=False)
    shape = results[0]["cell"].split("/")[1]
    figure.suptitle(f"Inference of one text, {shape}")
    figure.savefig(path, dpi=150)
    return True
