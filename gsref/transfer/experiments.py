"""What is measured?  One task, every method, many seeds: mistakes while learning, errors of the last iterate, attention.

A `Measured` is one such unit of work; it is made of arrays alone, so that a run can keep it and go on later.
"""

from dataclasses import dataclass, field

import numpy as np

from gsref.model import forward
from gsref.problem import positions
from gsref.scaling import crossing
from gsref.transfer import baselines
from gsref.transfer.rates import attention_errors, linear_error, relevant_attention, sampled_error
from gsref.transfer.sgd import default_step, train_attention
from gsref.transfer.task import DownstreamTask

METHODS = ("pretrained", "logistic_sgd", "from_zero", "max_likelihood")
FIRST = 8                                      # the first number of samples that is looked at
RESAMPLED = 200                                # bootstrap resamples of the seeds
REST = 64                                      # draws of the rest in `attention_error`, for each seed
FRESH = 2000                                   # fresh samples for an error without closed form, for each seed
MARGIN = 0.5                                   # lengths of runs are stated at this margin


@dataclass(frozen=True)
class Measured:
    """A method on a task.

    at (K,): numbers of samples; mistakes (S, K): of S seeds, nan where the method does not learn one by one; last
    (S, K) and last_error (S, K): test error of the state after at[k] samples, and its error; multiple: the step size in
    units of the method's rule; details: a mapping of arrays.
    """

    method: str
    at: np.ndarray
    mistakes: np.ndarray
    last: np.ndarray
    last_error: np.ndarray
    multiple: float
    details: dict = field(default_factory=dict)

    @property
    def online(self):
        """Average online error (S, K)."""
        return self.mistakes / self.at

    def curve(self, which):
        """`online` or `last`, (S, K), and the mean and its standard error over seeds."""
        rows = getattr(self, which)
        return rows, rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))

    def needed(self, eps, which="online", seed=0):
        """(samples until the mean over seeds is eps, its standard error), by bootstrap over seeds; None if never.

        Also None if more than 1 % of the resamples never get there: then the error is not known.
        """
        n, again = self.resampled([eps], which, seed)
        reached = again[~np.isnan(again[:, 0]), 0]
        if np.isnan(n[0]) or len(reached) < 0.99 * RESAMPLED:
            return None
        return float(n[0]), float(n[0] * np.std(reached, ddof=1))

    def resampled(self, eps, which="online", seed=0):
        """Samples needed for each of `eps` (E,), and their logarithms in each resample of the seeds, (RESAMPLED, E).

        nan where the mean over seeds does not get there.  One resample is the same seeds for all of `eps`.
        """
        rows = getattr(self, which)
        picks = np.random.default_rng(seed).integers(0, len(rows), (RESAMPLED, len(rows)))
        means = np.maximum(np.concatenate([rows.mean(axis=0)[None], rows[picks].mean(axis=1)]), 1e-300)
        found = [[crossing(self.at, mean, e) for e in eps] for mean in means]
        n = np.array([[np.nan if one is None else one[0] for one in row] for row in found])
        return n[0], np.log(n[1:])

    def arrays(self):
        """The fields as a mapping of arrays; `Measured.from_arrays` reads it back."""
        return {"method": np.array(self.method), "at": self.at, "mistakes": self.mistakes, "last": self.last,
                "last_error": self.last_error, "multiple": np.array(self.multiple),
                **{f"details/{name}": np.asarray(value) for name, value in self.details.items()}}

    @classmethod
    def from_arrays(cls, arrays):
        details = {name.removeprefix("details/"): value for name, value in arrays.items() if name.startswith("details/")}
        return cls(str(arrays["method"]), *(arrays[name] for name in ("at", "mistakes", "last", "last_error")),
                   float(arrays["multiple"]), details)


def lengths(method, d, D, margin, eps):
    """The numbers of samples at which a method is looked at: twice an octave, as far as its claim needs for `eps`.

    The factors are empirical, with room of 2 to 3: at margin 1/2 the pretrained model makes about 0.4 (d + D) mistakes
    in all, logistic regression about 0.35 d D.  Maximum likelihood is looked at from a quarter of d D on.
    """
    harder = max(1.0, (MARGIN / margin) ** 2) if margin > 0 else 8.0
    last = {"pretrained": 1.28 * (d + D) / eps, "logistic_sgd": 0.64 * d * D / eps, "from_zero": 32 / eps,
            "max_likelihood": 0.16 * d * D / eps}[method] * harder
    first = max(FIRST, d * D // 4) if method == "max_likelihood" else FIRST
    steps = int(np.ceil(2 * np.log2(max(last / first, 2))))
    return np.unique(np.round(first * 2.0 ** (np.arange(steps + 1) / 2)).astype(int))


def seeds_of(seed, *unit, count):
    """`count` seeds for one unit of work: independent of those of every other unit."""
    return np.random.SeedSequence([seed, *unit]).generate_state(count, np.uint64).tolist()


def direction_of(seed, d):
    """A random unit vector (d,): the downstream direction, the same in every unit of work of this d."""
    v = np.random.default_rng([seed, 2, d]).standard_normal(d)
    return v / np.linalg.norm(v)


def _attention_errors(task, run, rng):
    """Test errors of all states (v, W) of a run: (last, last_error), each (S, K)."""
    def one(v, W):
        if isinstance(task, DownstreamTask) and task.law == "gaussian":
            return attention_errors(task, v, W, REST, rng)
        P = positions(task.D)
        return np.array([sampled_error(task.held_out, lambda X: forward(*model, X, P)[0], FRESH, rng)
                         for model in zip(v, W)]).T
    return np.array([one(*state) for state in run.states]).transpose(1, 2, 0)


def _linear_error(task, rng):
    """(value, error) of a linear predictor w, as a function."""
    if isinstance(task, DownstreamTask) and task.law == "gaussian":
        return lambda w: linear_error(task, w)
    return lambda w: sampled_error(task.held_out, lambda X: np.einsum("nji,ji->n", X, w), FRESH, rng)


def measure(method, task, pretrained, seeds, at, start="zero", multiple=1.0, callback=None):
    """`Measured` of one method on one task, looked at after at[k] samples (see `lengths`).

    `pretrained` has v and W (method "pretrained" only, as are the next two); `start` says whether v starts from "zero"
    or "pretrained"; `multiple` is the step size in units of `default_step`.  `callback(n)` reports progress of SGD.
    The step sizes of the other methods are those of `baselines`, best by the mistakes made in all.
    """
    d, D, at = task.d, task.D, np.asarray(at)
    rng = np.random.default_rng([seeds[0], METHODS.index(method)])
    if method == "max_likelihood":
        return _likelihood(task, seeds, at, rng)

    def score(run):
        return run.mistakes[:, -1].mean()
    if method == "logistic_sgd":
        multiple, run, scores = baselines.logistic_sgd(task, seeds, at, score, callback)
        rate = _linear_error(task, rng)
        last, error = np.array([[rate(w) for w in state[0]] for state in run.states]).transpose(2, 1, 0)
        return Measured(method, at, run.mistakes, last, error, multiple, _grid(scores))
    if method == "from_zero":
        multiple, run, scores = baselines.sgd_from_zero(task, seeds, at, score, callback)
        details = _grid(scores)
        before = np.zeros((d + D, d + D))
    else:
        v = pretrained.v if start == "pretrained" else np.zeros(d + D)
        run = train_attention(task, v, pretrained.W, multiple * default_step(d, D), seeds, at, callback)
        details, before = {}, pretrained.W
    last, error = _attention_errors(task, run, rng)
    after = [relevant_attention(task.held_out, W, 500, rng)[0] for W in run.states[-1][1]]
    details |= {"attention_before": relevant_attention(task.held_out, before, 4000, rng),
                "attention_after": (np.mean(after), np.std(after, ddof=1) / np.sqrt(len(after)))}
    return Measured(method, at, run.mistakes, last, error, multiple, details)


def _grid(scores):
    return {"grid": list(scores), "grid_mistakes": list(scores.values())}


def _likelihood(task, seeds, at, rng):
    """Maximum likelihood on the first n samples of each seed, for every n of `at`; stopped early too, as a check."""
    error, last, rough, bound, separated = _linear_error(task, rng), [], [], [], []
    for seed in seeds:
        X, y = task.sample(int(at[-1]), np.random.default_rng(seed))
        fits = [baselines.maximum_likelihood(X[:n], y[:n]) for n in at]
        values = [error(fit.w) for fit in fits]
        last.append([value for value, _ in values])
        bound.append([e for _, e in values])
        rough.append([error(baselines.maximum_likelihood(X[:n], y[:n], gtol=1e-4).w)[0] for n in at])
        separated.append([fit.separates for fit in fits])
    last = np.array(last)
    return Measured("max_likelihood", at, np.full(last.shape, np.nan), last, np.array(bound), float("nan"),
                    {"separated": np.mean(separated, axis=0), "rough": np.mean(rough, axis=0)})
