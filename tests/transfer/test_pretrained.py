"""Pretrained models: the recursion at its T*, files of a user, and files that do not fit."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem
from gsref.transfer.pretrained import NotReached, pretrain, read_pretrained

PROBLEM = Problem(3, 4, relevant=2)


def test_pretraining_stops_at_the_loss_asked_for():
    seen = []
    model = pretrain(PROBLEM, 0.125, 1 / 16, callback=lambda step, loss: seen.append(loss))
    order, residual = OrderParameters.from_params(model.v, model.W, PROBLEM)
    assert residual < 1e-10 and order.alpha > 0 and model.details["attention"] > 0.9
    assert 0.9 / 16 < model.details["loss"] <= 1 / 16 < seen[-2]
    assert f"T* = {model.details['T_star']}" in model.source


def test_pretraining_that_does_not_get_there_says_how_far_it_came():
    with pytest.raises(NotReached, match=r"d=3, D=4, eta=0.125: loss 0.\d+ after 5 steps, expected 0.0625"):
        pretrain(PROBLEM, 0.125, 1 / 16, n_steps=5)


def test_a_file_is_read_back(tmp_path):
    v, W = np.arange(7.0), np.arange(49.0).reshape(7, 7)
    np.savez(tmp_path / "model.npz", v=v, W=W, other=np.zeros(2))
    model = read_pretrained(tmp_path / "model.npz", PROBLEM)
    assert (model.v == v).all() and (model.W == W).all() and "model.npz" in model.source


@pytest.mark.parametrize("arrays, text", [
    ({"v": np.zeros(7)}, r"no array named W, expected v \(7,\) and W \(7, 7\) at d=3, D=4"),
    ({"v": np.zeros(8), "W": np.zeros((7, 7))}, r"v: got shape \(8,\), expected \(7,\) at d=3, D=4"),
    ({"v": np.zeros(7), "W": np.zeros((7, 8))}, r"W: got shape \(7, 8\), expected \(7, 7\)"),
    ({"v": np.zeros(7), "W": np.full((7, 7), np.nan)}, "W: got nan"),
    ({"v": np.array(["a"] * 7), "W": np.zeros((7, 7))}, "v: got dtype"),
    ({"v": np.array([None] * 7), "W": np.zeros((7, 7))}, "pickle"),
])
def test_files_that_do_not_fit_are_refused(tmp_path, arrays, text):
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(ValueError, match=f"model.npz: .*{text}"):
        read_pretrained(tmp_path / "model.npz", PROBLEM)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut off"])
def test_files_that_are_not_npz_are_refused(tmp_path, content):
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(ValueError, match="model.npz: "):
        read_pretrained(tmp_path / "model.npz", PROBLEM)
    with pytest.raises(ValueError, match="no such file"):
        read_pretrained(tmp_path / "absent.npz", PROBLEM)
