"""Pictures: written whole, the same bytes each time, with the numbers they were drawn from; axes that say what they are."""

import json

import matplotlib
import numpy as np
import pytest

from gsref import Problem, descend, plots
from gsref.learning_rate import LearningRate
from gsref.theorem1 import Run


@pytest.fixture(scope="module")
def runs():
    rate = LearningRate.parse("0.5/D")
    return [Run(Problem(3, D), "position_only", rate, 0.5 / D, descend(Problem(3, D), 0.5 / D, 10**5, mode="position_only",
                flow=1e-3)) for D in (4, 8)]


LAWS = [(np.array([1, 5, 20]), np.array([0.7, 0.6, 0.1]))] * 2


def drawn(runs):
    yield "loss", plots.loss_against_steps(runs)
    yield "leak", plots.leak_against_steps(runs, LAWS)
    yield "order", plots.order_parameters(runs)
    yield "attention", plots.attention_maps(runs[1], [(row, np.full((8, 8), 1 / 8)) for row in (0, 5, 20)])
    yield "times", plots.times_to_loss(runs, [0.1, 0.03])


def test_every_picture_is_written_with_its_numbers(runs, tmp_path):
    for name, (picture, data) in drawn(runs):
        plots.save(picture, tmp_path, name, data)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
        assert len(json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))["caption"]) > 40
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg", ".json"}


def test_same_numbers_same_bytes(runs, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name, (picture, data) in list(drawn(runs))[:2]:
            plots.save(picture, tmp_path / folder, name, data)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_axes_have_labels_and_lines_have_names(runs):
    for name, (picture, _) in drawn(runs):
        shown = [axes for axes in picture.axes if axes.get_label() != "<colorbar>"]
        assert any(axes.get_xlabel() for axes in shown), name
        assert all(axes.get_ylabel() or axes.get_title() for axes in shown), name
        if name != "attention":
            texts = [text.get_text() for axes in shown if axes.get_legend() for text in axes.get_legend().get_texts()]
            assert any("D = 4" in text for text in texts) and any("D = 8" in text for text in texts), name


def test_the_caller_keeps_its_own_style(runs):
    before = dict(matplotlib.rcParams)
    plots.loss_against_steps(runs)
    assert dict(matplotlib.rcParams) == before
