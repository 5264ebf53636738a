"""Measurements at tiny sizes: against independent computations of the same numbers, and repeatable in any order."""

from dataclasses import replace

import numpy as np
import pytest

from gsref.metalearner import experiments
from gsref.metalearner.accuracy import Contexts
from gsref.metalearner.baselines import FULL_MLE, PROJECTED_MLE
from gsref.metalearner.experiments import Figure, generator
from gsref.metalearner.population import error_rate
from gsref.metalearner.problem import MetaProblem
from gsref.metalearner.sample_size import examples_needed
from gsref.metalearner.training import train

SMALL = Figure(d=20, k=(4,), R=(2.0,), B=60, M=(1, 5, 20), N=10, T=300, T_svm=50, eta=0.5, steps=250)


class Keep:
    """Shows nothing; keeps what is saved, and can hand out what an interrupted run has left."""

    def __init__(self, left=None):
        self.left, self.saved = left, []

    def show(self, share):
        assert 0.0 <= share <= 1.0

    def load(self):
        return self.left

    def save(self, state):
        self.saved.append({name: value.copy() for name, value in state.items()})


def test_accuracy_figure_against_its_parts():
    found = experiments.accuracy_figure(SMALL, 4, 2.0, 3, Keep())
    problem = MetaProblem(20, 4, 2.0)
    tasks = problem.sample_tasks(60, 10, generator(3, "training", 20, 60, 4, 2.0))
    trained = train(tasks, 0.5, 250, way="direct")
    np.testing.assert_allclose(found["losses"], trained.losses, rtol=1e-10)
    curve = Contexts(problem, 300, generator(3, "contexts", 20, 4, 2.0)).curve(trained.W, SMALL.M)
    np.testing.assert_allclose(found["trained"], curve.mean, rtol=1e-9)
    for name, order in (("full", FULL_MLE), ("projected", PROJECTED_MLE)):
        np.testing.assert_allclose(found[name], [1 - error_rate(problem, order, M)[0] for M in SMALL.M], rtol=1e-12)
        # a paired difference and the difference from the exact value agree within their errors, and the pair is sharper
        apart = found["trained"] - found[name] - found[f"minus_{name}"]
        assert (np.abs(apart) < 4.5 * np.hypot(found["trained_error"], found[f"minus_{name}_error"])).all()
    assert (found["minus_projected_error"] < found["trained_error"]).all() and (found["minus_projected"] < 0).all()
    assert found["population_p"].shape == (251,) and found["limit"][2] <= found["population_loss"].min()
    assert "limit" not in experiments.accuracy_figure(replace(SMALL, steps=1), 4, 2.0, 3, Keep(), path=False)


def test_unfinished_training_goes_on_bit_for_bit():
    keep = Keep()
    whole = experiments.accuracy_figure(SMALL, 4, 2.0, 3, keep, path=False)
    assert [len(state["losses"]) for state in keep.saved] == [100, 200, 250]
    again = experiments.accuracy_figure(SMALL, 4, 2.0, 3, Keep(keep.saved[0]), path=False)
    assert all(np.array_equal(whole[name], again[name]) for name in whole)
    other = experiments.accuracy_figure(SMALL, 4, 2.0, 4, Keep(), path=False)
    assert not np.array_equal(whole["trained"], other["trained"])


def test_svm_figure(monkeypatch):
    found, problem = experiments.svm_figure(SMALL, 4, 2.0, 0, Keep()), MetaProblem(20, 4, 2.0)
    assert found["residual"] < 1e-9 and found["svm"].shape == found["svm_origin_error"].shape == (3,)
    assert found["svm"][0] == 0.5 and found["svm_error"][0] == 0.0               # one example: one class
    # no learner that sees the context alone does better than the full MLE; with one example the SVM is that
    full = np.array([1 - error_rate(problem, FULL_MLE, M)[0] for M in SMALL.M])
    for key in ("svm", "svm_origin"):
        assert (found[key] < full + 4.5 * found[f"{key}_error"]).all()
    assert abs(found["svm_origin"][0] - full[0]) < 4.5 * found["svm_origin_error"][0]
    monkeypatch.setattr(experiments, "SVM_NUMBERS", 20 * 20 * 7)                 # blocks of 7 contexts: another draw
    blocks = experiments.svm_figure(SMALL, 4, 2.0, 0, Keep())
    assert (np.abs(blocks["svm"] - found["svm"]) <= 4.5 * np.hypot(blocks["svm_error"], found["svm_error"])).all()


@pytest.mark.parametrize("d, B, all_on", [(30, 12, True), (6, 20, False)])
def test_direction_nears_the_margin_and_its_law(d, B, all_on):
    found = experiments.direction(MetaProblem(d, 3, 2.0), B, 10, 1.0, 6, 0, Keep())
    assert found["steps"][0] == 1 and found["steps"][-1] == 10 ** 6 and (np.diff(found["gap"]) < 0).all()
    assert found["kkt"].max() < 1e-10 and (found["support"] == found["tasks"]) == all_on
    assert np.isfinite(found["predicted"]).all() == all_on
    if all_on:
        off = np.abs(found["gap"] / found["predicted"] - 1)[found["steps"] >= 100]
        assert (np.diff(off) < 0).all() and off[-1] < 0.3 * off[0]


def test_published_steps_are_between_the_first_step_and_the_margin():
    found = experiments.published_steps(MetaProblem(20, 3, 2.0), 60, 10, 0.01, 50, 0, Keep())
    assert 0 < found["cosine_margin"] < found["cosine_first"] < 1 and found["kkt"].max() < 1e-10
    assert found["accuracy"].shape == (3,) and found["least_margin"] < 1 and found["right"] <= 1
    one = experiments.published_steps(MetaProblem(20, 3, 2.0), 60, 10, 0.01, 1, 0, Keep())
    assert one["cosine_first"] == pytest.approx(1.0, abs=1e-12)


def test_sample_sizes_are_the_exact_numbers():
    found = experiments.sample_sizes((10, 40), (20, 50), (2.0, 4.0), Keep())
    # d does not matter where the subspace is known, k does not where it is not
    assert found["known"][1, 0] == pytest.approx(examples_needed(MetaProblem(30, 10, 4.0), PROJECTED_MLE), rel=1e-9)
    assert found["context_only"][0, 1] == pytest.approx(examples_needed(MetaProblem(50, 7, 2.0), FULL_MLE), rel=1e-9)


def test_tasks_needed_nears_the_optimum_by_its_law():
    found = experiments.tasks_needed(4, 2.0, 10, (8, 16), (200, 800), 400, 0, Keep(), steps=3, blocks=10)
    excess = found["ratio"] - 1
    assert (excess[:, 0] > excess[:, 1]).all() and (found["ratio_error"] > 0).all()
    assert (np.abs(excess / found["law"] - 1) < 1).all()
    assert found["projected"] == pytest.approx(examples_needed(MetaProblem(16, 4, 2.0), PROJECTED_MLE), rel=1e-9)
    assert (found["context_only"] > found["projected"]).all()


def test_jackknife_is_not_above_the_scatter():
    found = [experiments.tasks_needed(4, 2.0, 10, (8,), (4000,), 300, seed, Keep(), steps=1, blocks=10) for seed in range(12)]
    scatter = np.std([f["ratio"][0, 0] for f in found], ddof=1)
    # the scatter holds that of training sets as well; its own error with 12 draws is a fifth
    assert scatter > 0.4 * np.mean([f["ratio_error"][0, 0] for f in found])


def test_predecessor_stays_below_the_full_mle():
    found = experiments.predecessor((10, 20), 10, (4, 16), 200, 0.2, 0, Keep())
    assert found["accuracy"].shape == found["full"].shape == (2, 2)
    assert (found["accuracy"] < found["full"] + 4.5 * found["accuracy_error"]).all()      # B = d tasks: not there yet
    assert (np.diff(found["full"], axis=1) > 0).all() and ((0 < found["memorised"]) & (found["memorised"] < 1)).all()


def test_generators_depend_on_every_word():
    first = [generator(*place).random() for place in ((0, "a", 1), (1, "a", 1), (0, "b", 1), (0, "a", 2), (0, "a", 1))]
    assert len(set(first)) == 4 and first[0] == first[4]
