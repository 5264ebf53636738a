"""The patch experiment: where the image is, what is noise, and that the model learns which patch to look at."""

from dataclasses import replace

import numpy as np
import pytest

from gsref.transfer.images import UnusableImages, drawn
from gsref.transfer.patches import PatchRun, PatchTask, learn_patches

IMAGES = drawn(np.random.default_rng(0), n=60)[0]


def test_one_patch_is_an_image_and_the_others_are_noise_of_its_size():
    task = PatchTask(IMAGES, 5, 3)
    X, y = task.sample(400, np.random.default_rng(1))
    assert X.shape == (400, 5, 64) and (task.d, task.D, task.relevant) == (64, 5, 3)
    known = {(row.tobytes(), side) for row, side in zip((IMAGES.x - task.mean) / task.scale, IMAGES.y)}
    assert all((row.tobytes(), side) in known for row, side in zip(X[:, 3], y))
    assert np.mean(task.patches(IMAGES.x, np.random.default_rng(0))[:, 3] ** 2) == pytest.approx(1, rel=1e-12)
    noise = np.delete(X, 3, axis=1)
    assert abs(np.mean(noise**2) - 1) <= 4 * np.sqrt(2 / noise.size)


def test_held_out_images_are_the_test_images():
    task = PatchTask(IMAGES, 5, 3)
    X, y = task.held_out.sample(50, np.random.default_rng(1))
    known = {row.tobytes() for row in (IMAGES.x_test - task.mean) / task.scale}
    assert all(row.tobytes() in known for row in X[:, 3])


def test_descent_finds_the_patch():
    task = PatchTask(IMAGES, 4, 2)
    run = learn_patches(task, 12, np.random.default_rng(2), looks=4)
    assert run.step.tolist() == [0, 3, 6, 9, 12] and run.attention[0] == pytest.approx(0.25, abs=1e-12)
    assert run.loss[0] == pytest.approx(np.log(2)) and run.loss[-1] < 0.3 and run.test_error[0] == 1
    assert run.attention[-1] > 0.35 and run.map.shape == (4, 4)
    assert run.map[2].mean() == pytest.approx(run.attention[-1], rel=1e-12)
    again = PatchRun.from_arrays(run.arrays(), task)
    assert (again.W == run.W).all()


def test_images_that_are_all_the_same_are_refused():
    with pytest.raises(UnusableImages, match="are the same"):
        PatchTask(replace(IMAGES, x=np.ones_like(IMAGES.x)), 4, 2)
