"""How often is a trained W right?  Given the context, a normal probability: only tasks and contexts are sampled.

The query is x = y mu + z with z ~ N(0, I), so a linear rule w = W^T muhat is right with probability
Phi(w . mu / |w|). A context mean is s mu + g / sqrt(M); one draw of (mu, g) serves all M, and two products with W
serve all of them too.

Shapes: W (d, d), mu, g, muhat (T, d), accuracies (T, n) for n context lengths.  Source: derivations/08_metalearner.md.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from gsref.arguments import instance, integer, real, real_array
from gsref.metalearner.problem import MEMORY, MetaProblem, check_memory


def linear_accuracy(w, b, mu):
    """P(y (w . x + b) > 0) = [Phi((w.mu + b)/|w|) + Phi((w.mu - b)/|w|)]/2 for x = y mu + z; 1/2 where w = 0.

    w, mu (..., d), b (...,) or a number.
    """
    size = np.linalg.norm(w, axis=-1)
    signal = np.sum(w * mu, axis=-1)
    safe = np.where(size > 0, size, 1.0)
    return np.where(size > 0, (ndtr((signal + b) / safe) + ndtr((signal - b) / safe)) / 2.0, 0.5)


def accuracy_given_context(W, muhat, mu):
    """P(sign(muhat . W x) = y | muhat, mu) = Phi(w.mu/|w|), w = W^T muhat  [meta.11], shape (T,).

    Raises TypeError or ValueError, naming the argument.
    """
    muhat = real_array("muhat", muhat, ("T", "d"))
    T, d = muhat.shape
    return linear_accuracy(muhat @ real_array("W", W, (d, d)), 0.0, real_array("mu", mu, (T, d)))


@dataclass(frozen=True)
class Curve:
    """Accuracies of T tasks (T, n) at n context lengths: the same tasks at each, so differences are paired."""

    M: np.ndarray
    each: np.ndarray

    @property
    def mean(self):
        return self.each.mean(axis=0)

    @property
    def error(self):
        """Standard errors of the means."""
        return self.each.std(axis=0, ddof=1) / np.sqrt(len(self.each))


class Contexts:
    """T tasks and the noise of their context means, drawn once; `curve` gives accuracies at any context lengths."""

    def __init__(self, problem, T, rng, memory=MEMORY):
        instance("problem", problem, MetaProblem)
        T = integer("T", T, 2)
        check_memory(f"{T} contexts of dimension {problem.d}", 8 * 6 * T * problem.d, memory)
        self.problem = problem
        self.mu = problem.sample_means(T, rng)
        self.g = instance("rng", rng, np.random.Generator).standard_normal((T, problem.d))
        self.seed = int(rng.integers(2 ** 62))                # of the flips, drawn anew for each M but always the same

    def without(self, part):
        """The same contexts but those at the indices `part`: a group for the jackknife."""
        rest = copy(self)
        rest.mu, rest.g = np.delete(self.mu, part, axis=0), np.delete(self.g, part, axis=0)
        return rest

    def moments(self, W):
        """What accuracy depends on: mu.W mu, g.W mu, |W^T mu|^2, W^T mu . W^T g, |W^T g|^2, each (T,)."""
        a, b = self.mu @ W, self.g @ W
        return tuple(np.einsum("td,td->t", u, v) for u, v in ((a, self.mu), (b, self.mu), (a, a), (a, b), (b, b)))

    def accuracies(self, moments, M):
        """Accuracy of each task after M examples (any positive number where no label is flipped), shape (T,)."""
        smu, smg, aa, ab, bb = moments
        s = self.problem.sample_shrinkage(len(smu), M, np.random.default_rng([self.seed, int(M)]))
        size = np.sqrt(np.maximum(s ** 2 * aa + 2.0 * s * ab / np.sqrt(M) + bb / M, 0.0))
        return np.where(size > 0, ndtr((s * smu + smg / np.sqrt(M)) / np.where(size > 0, size, 1.0)), 0.5)

    def curve(self, W, M):
        """The `Curve` of W (d, d) at the context lengths `M`.  Raises TypeError or ValueError, naming the argument."""
        moments = self.moments(real_array("W", W, (self.problem.d, self.problem.d)))
        M = np.array([real("M", m, 0.0, open_least=True) for m in M])
        return Curve(M, np.stack([self.accuracies(moments, m) for m in M], axis=1))
