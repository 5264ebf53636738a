"""Does the model learn which patch holds the image?  The patch experiment, on the images of `images`.

One group is an image of one of two classes, the other D - 1 are noise.  As its authors describe it: a fixed set of
images, full-batch gradient descent from zero on (v, W), learning rate 0.5.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import integer, real_array
from gsref.gradients import loss_and_gradient
from gsref.model import forward
from gsref.problem import Problem
from gsref.transfer.images import UnusableImages
from gsref.transfer.task import Patterned

PUBLISHED_RATE = 0.5


class PatchTask(Patterned):
    """One image among D patches: group `relevant` is an image, the others are normal noise of the same mean square.

    Images are centred by the mean learning image and scaled to mean square 1 a pixel, so that a patch of noise cannot be
    told from an image by its size.  `sample` draws images with replacement and fresh noise: learning images, or with
    `testing` test images.  Has d, D, relevant, problem, held_out and sample as a DownstreamTask.
    Raises UnusableImages if the images are all the same.
    """

    def __init__(self, images, D, relevant, testing=False):
        self.images, self.testing = images, testing
        self.problem = Problem(images.x.shape[1], D, relevant=relevant)
        self.mean = images.x.mean(axis=0)
        self.scale = np.sqrt(np.mean((images.x - self.mean) ** 2))
        if not self.scale > 0:
            raise UnusableImages(f"{images.source}: all images of {' and '.join(images.classes)} are the same")

    @property
    def held_out(self):
        """The same task on images that were not learned from."""
        return PatchTask(self.images, self.D, self.relevant, testing=True)

    def patches(self, x, rng):
        """X (n, D, d): the images x (n, d) in the relevant group, noise in the others."""
        X = rng.standard_normal((len(x), self.D, self.d))
        X[:, self.relevant] = (x - self.mean) / self.scale
        return X

    def sample(self, n, rng):
        """n samples X (n, D, d), y (n,)."""
        x, y = (self.images.x_test, self.images.y_test) if self.testing else (self.images.x, self.images.y)
        rows = rng.integers(0, len(y), integer("n", n))
        return self.patches(x[rows], rng), y[rows]


@dataclass(frozen=True)
class PatchRun:
    """Gradient descent on the patches: step, loss, test_error, attention (K,): mean over test images and queries of the
    attention on the image; map (D, D): mean attention at the end; v, W: the model at the end."""

    step: np.ndarray
    loss: np.ndarray
    test_error: np.ndarray
    attention: np.ndarray
    map: np.ndarray
    v: np.ndarray
    W: np.ndarray

    def arrays(self):
        """The fields as a mapping of arrays; `PatchRun.from_arrays` reads it back."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays, task):
        """The inverse of `arrays`, for a run on `task`.  TypeError or ValueError if something is missing or does not fit."""
        size, K = task.d + task.D, "K"
        shapes = {"step": (K,), "loss": (K,), "test_error": (K,), "attention": (K,), "map": (task.D, task.D), "v": (size,),
                  "W": (size, size)}
        if set(arrays) != set(shapes):
            raise ValueError(f"got {', '.join(sorted(arrays))}, expected {', '.join(shapes)}")
        found = cls(**{name: real_array(name, arrays[name], shape) for name, shape in shapes.items()})
        if len({len(rows) for rows in (found.step, found.loss, found.test_error, found.attention)}) != 1:
            raise ValueError("step, loss, test_error, attention: expected equal lengths")
        return found


def learn_patches(task, steps, rng, eta=PUBLISHED_RATE, looks=20, callback=None):
    """`steps` steps of full-batch gradient descent from zero on every learning image once, noise drawn once.

    `callback(step, loss)` reports progress.
    """
    X, y = task.patches(task.images.x, rng), task.images.y
    X_test, y_test = task.held_out.sample(1000, rng)
    P, size = task.problem.positions, task.d + task.D
    v, W = np.zeros(size), np.zeros((size, size))
    at, rows = set(np.round(np.linspace(0, steps, looks + 1)).astype(int).tolist()), []
    for step in range(steps + 1):
        loss, dv, dW = loss_and_gradient(v, W, X, y, P)
        if callback:
            callback(step, loss)
        if step in at:
            f, S = forward(v, W, X_test, P)
            rows.append((step, loss, np.mean(~(y_test * f > 0)), S[:, task.relevant].mean()))
        if step < steps:
            v, W = v - eta * dv, W - eta * dW
    return PatchRun(*np.array(rows).T, S.mean(axis=0), v, W)
