"""What a fine-tuning draws."""

import tracemalloc

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.figure import Figure

from minibert.training import report


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved."""
    found, save = [], Figure.savefig

    def collect(figure, *given, **options):
        found.append(figure)
        save(figure, *given, **options)

    monkeypatch.setattr(Figure, "savefig", collect)
    return found


def luminance(color):
    """As WCAG 2 defines it."""
    parts = np.array(colors.to_rgb(color))
    return np.dot(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4), (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_counts_can_be_read_on_the_colour_that_is_shown(classes, figures, tmp_path):
    """Also where no class is taken for any other one often."""
    draw = np.random.default_rng(0)
    for predicted in (draw.integers(0, classes, 500), np.arange(500) % classes):
        report.plot_confusion(predicted, np.arange(500) % classes, [str(i) for i in range(classes)], tmp_path / "a.png")
        axes = figures[-1].axes[0]
        (image,) = axes.images
        assert len(axes.texts) == classes**2
        for text in axes.texts:
            column, row = map(int, text.get_position())
            shown = image.cmap(image.norm(image.get_array()[row, column]))
            light, dark = sorted((luminance(shown), luminance(text.get_color())), reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 4, (shown, text.get_color())


def test_of_a_great_many_classes_the_frequent_ones_are_drawn(figures, tmp_path):
    """A square of all would not fit into memory."""
    tracemalloc.start()
    labels = [f"label {i}" for i in range(30_000)]
    report.plot_confusion([7, 7, 29_999, 3], [7, 7, 29_999, 29_999], labels, tmp_path / "confusion.png")
    assert tracemalloc.get_traced_memory()[1] < 1e9
    tracemalloc.stop()
    (image,) = figures[0].axes[0].get_images()
    shares = np.asarray(image.get_array())
    assert shares.shape == (1000, 1000) and shares[7, 7] == 1 and shares[-1, -1] == 0.5 and shares[-1, 3] == 0.5
