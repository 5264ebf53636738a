"""Does a full-parameter run leave the symmetric manifold?  A sample closed under the symmetries, and a run on it.

Over such a sample the mean gradient has the symmetries of the law exactly, so that in exact arithmetic a run from zero
never leaves the manifold: what leaves it in float64 is rounding alone.  Source: derivations/10_stability.md.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import instance, integer, real
from gsref.gradients import loss_and_gradient
from gsref.order import OrderParameters
from gsref.problem import Problem
from gsref.quadrature import sobol_normals
from gsref.second_derivative import KINDS, Block, blocks_at, copies, name_of, points_of
from gsref.stability import BROKEN, growth

GROUPS, SLOPES = 8, 6                          # 7 irrelevant groups, and the units modulo 7
LED = 1e-11                                    # share of |(v, W)| at which the steepest direction has left the noise


def closed_sample(problem, n, seed=0):
    """A finite set of samples that the symmetries map onto itself, X (n_all, 8, d), y  [stability.10].

    n scrambled Sobol points and all their images under the flip, the sign changes of each feature across v*, and the
    42 maps i -> p i + q mod 7 of the irrelevant groups: a doubly transitive group, so it leaves the same score patterns
    fixed as all permutations do.  Expectations over the set, taken in exact arithmetic, never leave the manifold.
    At d = 3 the two features across v* are also exchanged, which makes W11 across v* proportional to I.
    Raises ValueError unless D = 8 and d <= 3.
    """
    D, d = problem.D, problem.d
    if D != GROUPS or d > 3:
        raise ValueError(f"problem: got D = {D}, d = {d}, expected D = {GROUPS} and d <= 3")
    whole = 2 ** int(np.ceil(np.log2(integer("n", n))))
    z = problem.sigma * sobol_normals(D * d, 0, whole, seed)[:n].reshape(n, D, d)
    frame = np.linalg.svd(problem.direction[None])[2]
    frame[0] = problem.direction
    images = [z]
    for axis in range(1, d):
        signs = np.ones(d)
        signs[axis] = -1
        images += [x * signs for x in images]
    if d == 3:
        images += [x[..., [0, 2, 1]] for x in images]
    images += [-x for x in images]
    others = np.delete(np.arange(D), problem.relevant)
    all_images = []
    for p in range(1, SLOPES + 1):
        for q in range(SLOPES + 1):
            place = np.arange(D)
            place[others] = others[(p * np.arange(D - 1) + q) % (D - 1)]
            all_images += [x[:, place] for x in images]
    # in random order: images that follow each other would have their rounding errors cancel in pairs
    X = np.random.default_rng(seed).permutation(np.concatenate(all_images))
    y = np.where(X[:, problem.relevant, 0] >= 0, 1.0, -1.0)
    return X @ frame, y


@dataclass(frozen=True)
class FullRun:
    """A run; row i belongs to step[i]: order (n, 6) projected, residual (n,) off the manifold, size (n,), loss (n,)."""

    step: np.ndarray
    order: np.ndarray
    residual: np.ndarray
    size: np.ndarray
    loss: np.ndarray

    @property
    def broken(self):
        """The first step that is off the manifold by more than BROKEN of |(v, W)|, or None."""
        off = np.flatnonzero(self.residual > BROKEN * self.size)
        return int(self.step[off[0]]) if len(off) else None


def full_run(problem, X, y, eta, n_steps, project=False, kick=0.0, until_broken=False):
    """Gradient descent of all of (v, W) from zero on the mean loss of the samples, as a `FullRun`.

    `project` takes away what is off the manifold after each step, as the recursion of the order parameters does;
    `kick` is added to the first entry of v2 at the start, a perturbation of a size that rounding cannot blur.
    Raises OverflowError if the run leaves float64.
    """
    instance("problem", problem, Problem)
    eta, n_steps = real("eta", eta, 0.0, open_least=True), integer("n_steps", n_steps, 0)
    d, P = problem.d, problem.positions
    v, W = np.zeros(d + problem.D), np.zeros((d + problem.D, d + problem.D))
    v[d] = kick
    rows = []
    for step in range(n_steps + 1):
        order, residual = OrderParameters.from_params(v, W, problem)
        if project:
            v, W = order.to_params(problem)
        loss, dv, dW = loss_and_gradient(v, W, X, y, P)
        size = float(np.hypot(np.linalg.norm(v), np.linalg.norm(W)))
        rows.append((step, order.to_array(), residual, size, loss))
        if until_broken and residual > BROKEN * size > 0:
            break
        v, W = v - eta * dv, W - eta * dW
    return FullRun(*(np.array(column) for column in zip(*rows)))


def growth_compared(run, predicted):
    """(first step, last step, factor of the run, predicted factor) of the residual while rounding leads and is small.

    From where the residual of `run` exceeds LED of |(v, W)| to where it exceeds BROKEN; None if there are no two such
    steps.  Both must have a row for each step.  Where rounding starts is luck, how it grows is not.
    """
    n = min(len(run.step), len(predicted.step))
    rows = np.flatnonzero((run.residual[:n] > LED * run.size[:n]) & (run.residual[:n] <= BROKEN * run.size[:n]))
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    measured, said = (float(one.residual[last] / one.residual[first]) for one in (run, predicted))
    return int(run.step[first]), int(run.step[last]), measured, said


def predicted_growth(problem, X, y, eta, path, every=1):
    """The growth of rounding that the second derivative *of the sample* predicts along `path` (a projected run of it).

    `every`: H is taken at every so many steps only.
    """
    points = points_of(problem, X, y)
    thin = FullRun(*(array[::every] for array in (path.step, path.order, path.residual, path.size, path.loss)))

    def blocks(order):
        return [Block(name_of(kind, letters), H, 0.0, copies(problem, kind))
                for kind, letters, H in blocks_at(problem, order, points, "full", KINDS)]
    return growth(problem, thin, eta, blocks=blocks, until_broken=False)
