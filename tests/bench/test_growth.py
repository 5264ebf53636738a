"""Growth and floor of the gradient's time: what is measured is what the names say, and the picture shows it."""

import numpy as np

from gsref.bench import gradient, growth, meters


def test_the_fastest_call_counts_and_the_first_does_not(monkeypatch):
    ticks = iter([0.0, 5.0, 10.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr(meters.time, "perf_counter", lambda: next(ticks))
    calls = []
    assert meters.best_time(lambda: calls.append(0), 3) == 2.0
    assert len(calls) == 4


def test_growth_has_the_exponents_of_its_times(monkeypatch):
    monkeypatch.setattr(growth, "loss_and_gradient", lambda v, W, X, y, P, threads: len(X))
    monkeypatch.setattr(growth, "best_time", lambda call, repeats: float(call()) ** 2)
    [row] = growth.growth({"n": [1, 4, 16]})
    assert row["seconds"] == [1.0, 16.0, 256.0]
    np.testing.assert_allclose(row["exponents"], 2)


def test_floor_is_below_the_gradient_and_grows_with_the_samples():
    arrays = growth.inputs(64, 16, 16)
    whole = meters.best_time(lambda: growth.loss_and_gradient(*arrays, threads=1), 15)
    assert growth.floor(64, 16, 16) < whole
    assert 2 < growth.floor(4096, 16, 16) / growth.floor(256, 16, 16) < 128


def test_picture_shows_each_ratio_and_each_exponent(tmp_path):
    medians = {"gsref, 1 thread": 2.0, "gsref, 2 threads": 1.0, "jax, blocks": 3.0}
    compared = gradient.ratios([{"shape": (8, 2, 3), "medians": medians, "floor": 0.5}])
    rows = [{"along": name, "x": [1, 2, 4], "seconds": [1e-3, 2e-3, 8e-3], "exponents": [1.0, 2.0]} for name in "ndD"]
    picture, data = growth.draw(compared, rows)
    assert data["ratios"] == compared and data["growth"] == rows
    left, right = picture.axes
    assert [line.get_ydata()[0] for line in left.lines[:2]] == [3.0, 0.5]            # no autograd here
    assert [text.get_text() for text in right.texts] == ["1.0", "2.0"] * 3
