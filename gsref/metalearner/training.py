"""How is W trained on B tasks?  Full-batch gradient descent, in one of two exact ways.

On W itself, a step costs two products with a (d, d) matrix for every task. In terms of the tasks, W stays a
combination of the rank-one features,

    W = sum_i alpha_i muhat_i (y_i x_i)^T,    t = K alpha,    alpha += (eta/B) s(-t),
    K[i, j] = y_i y_j (muhat_i . muhat_j)(x_i . x_j)

and a step costs one product with the (B, B) kernel. Both give the same numbers to rounding; `train` takes the
cheaper one by operation counts that fits the memory.

Shapes: W (d, d), muhat, xy (B, d) with xy = y x, alpha, t (B,), K (B, B).  Source: derivations/08_metalearner.md.
"""

from dataclasses import dataclass

import numpy as np

from gsref.arguments import choice, instance, integer, real, real_array
from gsref.metalearner.problem import MEMORY, Tasks
from gsref.model import logistic_factor, logistic_loss

TILE = 2048                                    # side of a tile of K: 32 MB; empirical
NODES = 20                                     # right-hand sides that share one reading of K; empirical
FIRST = 64                                     # steps of the first window that is tried; empirical
DEFECT = 1e-13                                 # by how much a factor in [0, 1] may differ from s(-t)
SWEEPS_MOST = 30                               # Picard sweeps of a window; those of NODES steps need at most NODES + 1
PASSES = 400                                   # operations that reading a number of a task costs; empirical
OPERATIONS = 16                                # per entry of K and step, at the published rate; empirical


def direct_cost(B, d, steps):
    """Operations and bytes of training on W: two products of 2 d^2 operations a task and step, and passes over it."""
    return (4.0 * d ** 2 + PASSES * d) * B * steps, 8.0 * (5.0 * B * d + 3.0 * d ** 2)


def kernel_cost(B, d, steps):
    """Operations and bytes of training on K: two inner products for half its entries; OPERATIONS for each entry and step."""
    return 2.0 * B ** 2 * d + OPERATIONS * B ** 2 * steps, 8.0 * (B * (B + TILE) / 2.0 + 6.0 * B * d + d ** 2)


def choose_way(B, d, steps, memory=MEMORY):
    """"direct" or "kernel": the cheaper that fits.  MemoryError, naming the numbers, if neither does."""
    costs = {"direct": direct_cost(B, d, steps), "kernel": kernel_cost(B, d, steps)}
    fitting = {way: operations for way, (operations, size) in costs.items() if size <= memory}
    if not fitting:
        need = ", ".join(f"{way} {size / 1e9:.3g} GB" for way, (_, size) in costs.items())
        raise MemoryError(f"training on {B} tasks of dimension {d} needs {need}; allowed are {memory / 1e9:.3g} GB "
                          "(argument memory)")
    return min(fitting, key=fitting.get)


def combine(tasks, alpha):
    """W = sum_i alpha_i muhat_i (y_i x_i)^T, shape (d, d), for coefficients alpha (B,)."""
    return tasks.muhat.T @ ((alpha * tasks.y)[:, None] * tasks.x)


class Kernel:
    """K[i, j] = y_i y_j (muhat_i . muhat_j)(x_i . x_j)  [meta.4], the upper triangle in tiles."""

    def __init__(self, muhat, xy):
        self.B = len(muhat)
        self.edges = [(a, min(a + TILE, self.B)) for a in range(0, self.B, TILE)]
        self.tiles = []
        for i, (a, b) in enumerate(self.edges):
            row = [(muhat[a:b] @ muhat[c:e].T) * (xy[a:b] @ xy[c:e].T) for c, e in self.edges[i:]]
            self.tiles.append(row)

    def of_rows(self, C):
        """C K for C (m, B): the right-hand sides as rows, which narrow matrix products do fastest."""
        out = np.zeros_like(C)
        for i, (a, b) in enumerate(self.edges):
            for tile, (c, e) in zip(self.tiles[i], self.edges[i:]):
                out[:, c:e] += C[:, a:b] @ tile
                if c > a:
                    out[:, a:b] += C[:, c:e] @ tile.T
        return out


class DirectTrainer:
    """Gradient descent on W.  `state` is W; `losses` holds the loss before each step taken by this object."""

    way = "direct"

    def __init__(self, tasks, eta, state=None):
        self.muhat, self.xy, self.eta = tasks.muhat, tasks.y[:, None] * tasks.x, eta
        d = self.muhat.shape[1]
        self.state = np.zeros((d, d)) if state is None else real_array("state", state, (d, d)).copy()
        self.losses = []

    @property
    def W(self):
        return self.state

    def margins(self):
        """t (B,) at the present W."""
        return np.concatenate([t for _, t in self._blocks()])

    def _blocks(self, size=512):
        for start in range(0, len(self.xy), size):
            part = slice(start, start + size)
            yield part, np.einsum("bd,bd->b", self.muhat[part] @ self.state, self.xy[part])

    def advance(self, steps):
        """`steps` steps  W += (eta/B) sum_i s(-t_i) muhat_i (y_i x_i)^T."""
        B = len(self.xy)
        for _ in range(steps):
            change, loss = np.zeros_like(self.state), 0.0
            for part, t in self._blocks():
                change += self.muhat[part].T @ (logistic_factor(t)[:, None] * self.xy[part])
                loss += float(logistic_loss(t).sum())
            self.losses.append(loss / B)
            self.state = self.state + self.eta / B * change


class KernelTrainer:
    """Gradient descent on alpha.  `state` is [alpha, t], (2, B); `losses` as in `DirectTrainer`."""

    way = "kernel"

    def __init__(self, tasks, eta, state=None):
        self.muhat, self.xy, self.eta = tasks.muhat, tasks.y[:, None] * tasks.x, eta
        self.K = Kernel(self.muhat, self.xy)
        self.state = np.zeros((2, len(self.xy))) if state is None else real_array("state", state, (2, len(self.xy))).copy()
        self.losses = []

    @property
    def W(self):
        return self.muhat.T @ (self.state[0][:, None] * self.xy)

    def margins(self):
        """t (B,) at the present alpha."""
        return self.state[1]

    def advance(self, steps):
        """`steps` steps  alpha += (eta/B) s(-t),  t = K alpha, a window of them at a time.

        A step costs one reading of K, and one reading can serve several right-hand sides. So the factors c_r = s(-t_r)
        of the steps r of a window are written as a polynomial in r through NODES of the steps; the margins of all
        steps then follow from NODES products, and give better factors (Picard's iteration, which converges like
        x^m/m!). The window is accepted when at *every* step the factor that was used is s(-t_r) to DEFECT: it then
        is gradient descent to that accuracy. If not, it is halved; with no more than NODES steps it is exact.
        """
        n, recent = FIRST, None
        while steps > 0:
            n = min(n, steps)
            found = self._window(n, recent)
            if found is not None:
                recent, steps, n = found, steps - n, 2 * n
            else:
                n = max(NODES, n // 2)

    def _window(self, n, recent):
        """Take n steps if the polynomial represents them: returns the factors of the last four, or None.

        `recent` are those factors of the window before: a cubic through them is the first guess.
        """
        alpha, t = self.state
        rate = self.eta / len(t)
        x = _window_nodes(n)
        basis = _lagrange(x, np.arange(n))                                             # (n, J): basis[r, j] = l_j(r)
        sums = np.concatenate([np.zeros((1, len(x))), np.cumsum(basis, axis=0)])       # sum of l_j over the steps before
        if recent is None:
            c = np.repeat(logistic_factor(t)[None], len(x), axis=0)                    # (J, B): factors at the nodes
        else:
            c = np.clip(_lagrange(np.arange(4), 4 + x) @ recent, 0.0, 1.0)
        product = np.zeros_like(c)                                                     # c K, built up from changes of c
        change = c
        for _ in range(SWEEPS_MOST):
            product += self.K.of_rows(change)
            change = logistic_factor(t + rate * sums[x] @ product) - c
            c = c + change
            if np.abs(change).max() < DEFECT / 10.0:
                break
        for start in range(0, n, 16):                                                  # 16 steps at a time: memory
            part = slice(start, start + 16)
            defect = logistic_factor(t + rate * sums[:-1][part] @ product) - basis[part] @ c
            if np.abs(defect).max() > DEFECT:
                return None
        for start in range(0, n, 16):
            self.losses += logistic_loss(t + rate * sums[:-1][start:start + 16] @ product).mean(axis=1).tolist()
        self.state = np.stack([alpha + rate * sums[-1] @ c, t + rate * sums[-1] @ product])
        return logistic_factor(t + rate * sums[-5:-1] @ product)


def _window_nodes(n):
    """At most NODES steps of 0..n-1, crowded at both ends as Chebyshev points are."""
    J = min(n, NODES)
    chebyshev = (n - 1) * (1.0 - np.cos(np.pi * np.arange(J) / max(J - 1, 1))) / 2.0
    x = np.round(chebyshev).astype(int)
    for j in range(1, J):                      # distinct: rounding may have joined the crowded ones
        x[j] = max(x[j], x[j - 1] + 1)
    for j in range(J - 1, -1, -1):
        x[j] = min(x[j], n - J + j)
    return x


def _lagrange(x, r):
    """l_j(r), 1 at the node x_j and 0 at the others, for nodes x (J,) at r (n,): shape (n, J), by the product formula."""
    differences = x[:, None] - x[None, :]
    off = ~np.eye(len(x), dtype=bool)
    factors = np.where(off, (r[:, None, None] - x[None, None, :]) / np.where(off, differences, 1), 1.0)    # (n, J, J)
    return factors.prod(axis=2)


@dataclass(frozen=True)
class Trained:
    """W (d, d) after `steps` steps, margins (B,) there, losses (steps,) before each step, and the way it was computed."""

    W: np.ndarray
    margins: np.ndarray
    losses: np.ndarray
    way: str


def trainer(tasks, eta, steps, way="auto", state=None, memory=MEMORY):
    """A trainer at zero (or at the `state` of an earlier one).  Raises TypeError, ValueError, MemoryError."""
    instance("tasks", tasks, Tasks)
    eta, steps = real("eta", eta, 0.0, open_least=True), integer("steps", steps, 0)
    if choice("way", way, ("auto", "direct", "kernel")) == "auto":
        way = choose_way(*tasks.x.shape, steps, memory)
    return {"direct": DirectTrainer, "kernel": KernelTrainer}[way](tasks, eta, state)


def train(tasks, eta=0.01, steps=300, way="auto", memory=MEMORY):
    """Full-batch gradient descent from zero (default: the published settings): a `Trained`.  Errors as `trainer`."""
    run = trainer(tasks, eta, steps, way, memory=memory)
    run.advance(steps)
    return Trained(run.W, run.margins(), np.array(run.losses), run.way)
