"""Pretrained models: the recursion at its T*, files of a user, and files that do not fit."""

import numpy as np
import pytest

from gsref import OrderParameters, Problem, forward
from gsref.transfer.pretrained import NotReached, pretrain, read_pretrained

PROBLEM = Problem(3, 4, relevant=2)


def test_pretraining_stops_at_the_loss_asked_for():
    seen = []
    model = pretrain(PROBLEM, 0.125, 1 / 16, callback=lambda step, loss: seen.append(loss))
    order, residual = OrderParameters.from_params(model.v, model.W, PROBLEM)
    assert residual < 1e-10 and order.alpha > 0 and model.details["attention"] > 0.9
    assert 0.9 / 16 < model.details["loss"] <= 1 / 16 < seen[-2]
    assert f"T* = {model.details['T_star']}" in model.source
    np.testing.assert_allclose(order.to_array(), model.details["order"], rtol=1e-12, atol=1e-14)


def test_the_pretrained_model_has_the_loss_and_the_attention_it_states():
    # by samples of the pretraining task, not by the recursion
    model = pretrain(PROBLEM, 0.125, 1 / 16)
    X, y = PROBLEM.sample(20000, np.random.default_rng(0))
    f, S = forward(model.v, model.W, X, PROBLEM.positions)
    loss = np.logaddexp(0, -y * f)
    assert abs(loss.mean() - model.details["loss"]) <= 4 * loss.std() / np.sqrt(len(y))
    # position-only: attention does not depend on the data; what is stated is the least over the queries
    assert S[:, 2].min() == pytest.approx(S[0, 2].min(), rel=1e-12)
    assert S[0, 2].min() <= model.details["attention"] * (1 + 1e-12) and model.details["attention"] <= S[0, 2].max() * (1 + 1e-12)


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


def test_entries_whose_products_would_overflow_are_refused(tmp_path):
    np.savez(tmp_path / "model.npz", v=np.zeros(7), W=np.full((7, 7), 1e200))
    with pytest.raises(ValueError, match="model.npz: W: got an entry of 1e.200, expected at most 1e.100"):
        read_pretrained(tmp_path / "model.npz", PROBLEM)


def test_a_file_damaged_anywhere_is_refused_or_read_as_it_was(tmp_path):
    v, W = np.arange(7.0), np.arange(49.0).reshape(7, 7)
    np.savez(tmp_path / "whole.npz", v=v, W=W)
    whole = (tmp_path / "whole.npz").read_bytes()
    refused = 0
    for k in range(0, len(whole), 5):
        content = bytearray(whole)
        content[k] ^= 0xFF
        (tmp_path / "model.npz").write_bytes(bytes(content))
        try:
            model = read_pretrained(tmp_path / "model.npz", PROBLEM)
        except ValueError as refusal:
            refused += str(refusal).startswith(str(tmp_path / "model.npz"))
        else:
            assert (model.v == v).all() and (model.W == W).all()
    assert refused > len(whole) / 10           # the rest are names, times and attributes that say nothing of the numbers
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match="folder.npz: cannot be read"):
        read_pretrained(tmp_path / "folder.npz", PROBLEM)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut off"])
def test_files_that_are_not_npz_are_refused(tmp_path, content):
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(ValueError, match="model.npz: "):
        read_pretrained(tmp_path / "model.npz", PROBLEM)
    with pytest.raises(ValueError, match="no such file"):
        read_pretrained(tmp_path / "absent.npz", PROBLEM)
