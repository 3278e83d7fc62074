"""What a fine-tuning draws."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from minibert.training.evaluation import plots


@pytest.fixture
def axes(monkeypatch):
    """Those of the figures that are saved, the last one first."""
    found, save = [], Figure.savefig

    def collect(figure, *given, **options):
        found.insert(0, figure.axes[0])
        save(figure, *given, **options)

    monkeypatch.setattr(Figure, "savefig", collect)
    return found


def test_of_a_great_many_classes_the_frequent_ones_are_drawn(axes, tmp_path):
    """A square of all would not fit into memory."""
    labels = [f"label {i}" for i in range(30_000)]
    plots.plot_confusion(
        [7, 7, 29_999, 3], [7, 7, 29_999, 29_999], labels, tmp_path / "confusion.png"
    )
    (image,) = axes[0].get_images()
    shares = np.asarray(image.get_array())
    assert (
        shares.shape == (60, 60)
        and shares[7, 7] == 1
        and shares[-1, -1] == 0.5
        and shares[-1, 3] == 0.5
    )


def test_a_picture_is_drawn_through_no_link(tmp_path):
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    (tmp_path / "scores.png").symlink_to(victim)
    plots.plot_scores({"a": 0.5}, "F1", tmp_path / "scores.png")
    assert victim.read_text() == "mine"
    assert (tmp_path / "scores.png").read_bytes().startswith(b"\x89PNG")


def test_classes_and_scores_have_their_names(axes, tmp_path):
    plots.plot_confusion([0, 1, 1], [0, 1, 0], ["$a_$", "b\n"], tmp_path / "confusion.png")
    assert [text.get_text() for text in axes[0].get_yticklabels()] == ["$a_$", "b"]
    plots.plot_scores({"a": 0.5, "b": 0.25}, "F1", tmp_path / "scores.png")
    assert [bar.get_width() for bar in axes[0].patches] == [0.5, 0.25]
