"""What is the data law of the metalearner?

A task has a mean mu, uniform on the sphere of radius R in a fixed k-dimensional subspace of R^d; its examples are

    x = y mu + z,    z ~ N(0, I_d),    y = -1 or +1 with probability 1/2.

A task is seen through a context of labelled examples, whose labels are flipped with probability `label_noise`,
and one query, whose label is never flipped.

Shapes: mu, muhat, x (B, d), y (B,), basis (d, k).  Source: derivations/08_metalearner.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from gsref.arguments import instance, integer, real, real_array

MEMORY = 4e9                                   # bytes that one call may take, unless the caller says otherwise


def check_memory(name, needed, memory):
    """MemoryError that names the numbers if `needed` bytes are more than `memory`."""
    if needed > memory:
        raise MemoryError(f"{name}: needs {needed / 1e9:.3g} GB, allowed are {memory / 1e9:.3g} GB (argument memory)")


def context_length(name, N, label_noise):
    """N > 0 as a float; as an int where flipped labels are counted.  TypeError or ValueError."""
    N = real(name, N, 0.0, open_least=True)
    if label_noise == 0.0:
        return N
    if N != int(N):
        raise ValueError(f"{name}: got {N:g}, expected a whole number of examples when label_noise > 0")
    return int(N)


@dataclass(frozen=True)
class Tasks:
    """What the model needs of B tasks: context means `muhat`, queries `x` with labels `y`; and the true means `mu`."""

    muhat: np.ndarray
    x: np.ndarray
    y: np.ndarray
    mu: np.ndarray

    def __len__(self):
        return len(self.y)


@dataclass(frozen=True, eq=False)
class MetaProblem:
    """The data law, validated once and never changed.

    Parameters: dimension `d`, dimension `k` <= d of the subspace of the means, their norm `R` > 0, probability
    `label_noise` in [0, 1/2) that a label of the context is flipped, `basis` (d, k) with orthonormal columns that
    span the subspace (default: the first k coordinates).
    Raises TypeError or ValueError, naming the argument.
    """

    d: int
    k: int
    R: float
    label_noise: float = 0.0
    basis: np.ndarray = None

    def __post_init__(self):
        d = integer("d", self.d)
        k = integer("k", self.k, 1, d)
        noise = real("label_noise", self.label_noise, 0.0)
        if noise >= 0.5:
            raise ValueError(f"label_noise: got {noise:g}, expected a probability below 1/2")
        basis = None
        if self.basis is not None:
            basis = real_array("basis", self.basis, (d, k)).copy()
            away = np.abs(basis.T @ basis - np.eye(k)).max()
            if away > 1e-8:
                raise ValueError(f"basis: got columns that are off orthonormal by {away:.3g}, expected at most 1e-8")
            basis.flags.writeable = False
        for name, value in (("d", d), ("k", k), ("R", real("R", self.R, 0.0, open_least=True)),
                            ("label_noise", noise), ("basis", basis)):
            object.__setattr__(self, name, value)

    @property
    def projector(self):
        """Pi, shape (d, d): the orthogonal projector on the subspace."""
        return self.embed(self.coordinates(np.eye(self.d)))

    def coordinates(self, vectors):
        """(..., d) to (..., k): the coordinates along the basis."""
        return vectors[..., :self.k] if self.basis is None else vectors @ self.basis

    def embed(self, coordinates):
        """(..., k) to (..., d): the vectors of the subspace with these coordinates."""
        if self.basis is not None:
            return coordinates @ self.basis.T
        return np.concatenate([coordinates, np.zeros(coordinates.shape[:-1] + (self.d - self.k,))], axis=-1)

    def sample_means(self, B, rng):
        """B task means, shape (B, d), uniform on the sphere of radius R in the subspace."""
        g = instance("rng", rng, np.random.Generator).standard_normal((integer("B", B), self.k))
        return self.embed(self.R * g / np.linalg.norm(g, axis=1, keepdims=True))

    def sample_shrinkage(self, B, N, rng):
        """B draws of s = 1 - 2 Bin(N, label_noise) / N, by how much flipped labels shorten a context mean."""
        if self.label_noise == 0.0:
            return np.ones(B)
        N = context_length("N", N, self.label_noise)
        return 1.0 - 2.0 * rng.binomial(N, self.label_noise, size=B) / N

    def shrinkage_law(self, N):
        """The values of s = 1 - 2 Bin(N, label_noise)/N and their probabilities (S,), those below 1e-18 left out."""
        if self.label_noise == 0.0:
            return np.ones(1), np.ones(1)
        N = context_length("N", N, self.label_noise)
        flips = np.arange(N + 1)
        log_weight = (gammaln(N + 1) - gammaln(flips + 1) - gammaln(N - flips + 1)
                      + flips * np.log(self.label_noise) + (N - flips) * np.log1p(-self.label_noise))
        keep = log_weight > -41.0
        weight = np.exp(log_weight[keep])
        return (1.0 - 2.0 * flips / N)[keep], weight / weight.sum()

    def sample_context(self, mu, N, rng, with_clean=False):
        """N labelled examples of each task: X (B, N, d), labels (B, N), some flipped; mu (B, d).

        `with_clean` returns (X, labels, y) with the labels before flipping as well.
        """
        B = len(mu)
        y = rng.choice([-1.0, 1.0], size=(B, N))
        X = y[:, :, None] * mu[:, None, :] + rng.standard_normal((B, N, self.d))
        shown = np.where(rng.random((B, N)) < self.label_noise, -y, y)
        return (X, shown, y) if with_clean else (X, shown)

    def sample_tasks(self, B, N, rng, draw="law", memory=MEMORY):
        """B tasks with contexts of N examples: a `Tasks`.

        A context mean has the law  muhat = s mu + g / sqrt(N),  g ~ N(0, I_d),  s = 1 - 2 Bin(N, label_noise)/N
        [meta.1]: `draw="law"` draws from it, `draw="examples"` averages N examples.
        Raises TypeError or ValueError for a bad argument, MemoryError for more than `memory` bytes.
        """
        B, N = integer("B", B), integer("N", N)
        instance("rng", rng, np.random.Generator)
        if draw not in ("law", "examples"):
            raise ValueError(f"draw: got {draw!r}, expected 'law' or 'examples'")
        check_memory(f"{B} tasks of dimension {self.d}", 8 * 5 * B * self.d, memory)
        mu = self.sample_means(B, rng)
        if draw == "law":
            muhat = self.sample_shrinkage(B, N, rng)[:, None] * mu + rng.standard_normal((B, self.d)) / np.sqrt(N)
        else:
            muhat = np.empty((B, self.d))
            block = max(1, int(2e7 / (N * self.d)))                       # at most about 0.5 GB of examples at a time
            for start in range(0, B, block):
                X, labels = self.sample_context(mu[start:start + block], N, rng)
                muhat[start:start + block] = np.einsum("bn,bnd->bd", labels, X) / N
        y = rng.choice([-1.0, 1.0], size=B)
        return Tasks(muhat, y[:, None] * mu + rng.standard_normal((B, self.d)), y, mu)
