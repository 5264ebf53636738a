"""What is measured?  One task, every method, many seeds: mistakes while learning, errors of the last iterate, attention.

A `Measured` is one such unit of work; it is made of arrays alone, so that a run can keep it and go on later.
"""

from dataclasses import dataclass, field

import numpy as np

from gsref.arguments import choice, instance, real, real_array
from gsref.model import forward
from gsref.problem import positions
from gsref.scaling import crossings
from gsref.transfer import baselines
from gsref.transfer.rates import attention_errors, linear_error, relevant_attention, wrong_share
from gsref.transfer.sgd import default_step, integers, rising, train_attention
from gsref.transfer.task import DownstreamTask, Patterned

METHODS = ("pretrained", "logistic_sgd", "from_zero", "max_likelihood")
FIRST = 8                                      # the first number of samples that is looked at
BEFORE = (1, 2, 3, 4, 6)                       # and by maximum likelihood before
RESAMPLED = 200                                # bootstrap resamples of the seeds
REST = 64                                      # draws of the rest in `attention_error`, for each seed
FRESH = 2000                                   # fresh samples for an error without closed form, for each seed
MARGIN = 0.5                                   # lengths of runs are stated at this margin
LONGEST = 10**7                                # samples of a run, at most
LARGEST = 2**29                                # numbers that maximum likelihood holds at once, at most (4 GiB)


@dataclass(frozen=True)
class Measured:
    """A method on a task.

    at (K,): numbers of samples; mistakes (S, K): of S seeds, counted, or expected (maximum likelihood); last (S, K) and
    last_error (S, K): test error of the state after at[k] samples, and its error; multiple: the step size in units of
    the method's rule; details: a mapping of arrays.
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
        n = np.stack([crossings(self.at, means, e) for e in eps], axis=1)
        return n[0], np.log(n[1:])

    def arrays(self):
        """The fields as a mapping of arrays; `Measured.from_arrays` reads it back."""
        return {"method": np.array(self.method), "at": self.at, "mistakes": self.mistakes, "last": self.last,
                "last_error": self.last_error, "multiple": np.array(self.multiple),
                **{f"details/{name}": np.asarray(value) for name, value in self.details.items()}}

    @classmethod
    def from_arrays(cls, arrays):
        """The inverse of `arrays`.  TypeError or ValueError if something is missing or does not fit."""
        method, details = str(_one(arrays, "method")), {name.removeprefix("details/"): value for name, value in arrays.items()
                                                        if name.startswith("details/")}
        choice("method", method, METHODS)
        needed = ("attention_before", "attention_after") if method in ("pretrained", "from_zero") else ()
        for name in needed:
            real_array(f"details/{name}", _one(details, name), (2,))
        real_array("at", _one(arrays, "at"), ("K",))
        tables = [real_array(name, _one(arrays, name), ("S", len(arrays["at"]))) for name in ("mistakes", "last", "last_error")]
        if len({len(table) for table in tables}) != 1:
            raise ValueError(f"mistakes, last, last_error: got {[len(table) for table in tables]} seeds, expected equal numbers")
        return cls(method, arrays["at"], *tables, float(_one(arrays, "multiple")), details)


def _one(arrays, name):
    if name not in arrays:
        raise ValueError(f"{name}: missing")
    return arrays[name]


def lengths(method, d, D, margin, eps):
    """The numbers of samples at which a method is looked at: twice an octave, as far as its claim needs for `eps`.

    The factors are empirical, with room of 2 to 3: at margin 1/2 the pretrained model makes about 0.4 (d + D) mistakes
    in all, logistic regression about 0.35 d D.  Maximum likelihood is also looked at before FIRST (its average online
    error is an integral from the first sample on), and without a margin less far: it is dear, and judged by its test
    error there.  Raises ValueError if that is more than LONGEST samples, or LARGEST numbers for maximum likelihood.
    """
    free = 2.0 if method == "max_likelihood" else 8.0
    harder = max(1.0, MARGIN / margin) ** 2 if margin > 1e-100 else np.inf if margin > 0 else free
    last = {"pretrained": 1.28 * (d + D) / eps, "logistic_sgd": 0.64 * d * D / eps, "from_zero": 32 / eps,
            "max_likelihood": 0.48 * d * D / eps}[method] * harder
    most = min(LONGEST, LARGEST // (d * D)) if method == "max_likelihood" else LONGEST
    if not last <= most:
        raise ValueError(f"eps {eps:g} at d = {d}, D = {D}, margin {margin:g} takes {last:.2g} samples ({method}), expected at "
                         f"most {most:.2g}: choose a larger eps, a larger margin or smaller sizes")
    steps = int(np.ceil(2 * np.log2(max(last / FIRST, 2))))
    at = np.unique(np.round(FIRST * 2.0 ** (np.arange(steps + 1) / 2)).astype(int))
    return np.concatenate([BEFORE, at]) if method == "max_likelihood" else at


def seeds_of(seed, *unit, count):
    """`count` seeds for one unit of work: independent of those of every other unit."""
    return np.random.SeedSequence([seed, *unit]).generate_state(count, np.uint64).tolist()


def direction_of(seed, d):
    """A random unit vector (d,): the downstream direction, the same in every unit of work of this d."""
    v = np.random.default_rng([seed, 2, d]).standard_normal(d)
    return v / np.linalg.norm(v)


def _closed_form(task):
    return isinstance(task, DownstreamTask) and task.law == "gaussian"


def _attention_errors(task, states, rng):
    """Test errors of all states (v (S, d+D), W (S, d+D, d+D)), K of them: (last, last_error), each (S, K)."""
    if _closed_form(task):
        return np.array([attention_errors(task, v, W, REST, rng) for v, W in states]).transpose(1, 2, 0)
    P = positions(task.D)
    return _sampled_errors(task, states, lambda X, v, W: forward(v, W, X, P)[0], rng)


def _linear_errors(task, states, rng):
    """Test errors of all states (w (S, D, d),), K of them: (last, last_error), each (S, K)."""
    if _closed_form(task):
        return np.array([[linear_error(task, w) for w in state[0]] for state in states]).transpose(2, 1, 0)
    return _sampled_errors(task, states, lambda X, w: np.einsum("nji,ji->n", X, w), rng)


def _sampled_errors(task, states, predict, rng):
    """Errors (2, S, K) on fresh samples: each seed has its own, all states of a seed the same."""
    rows = []
    for seed in zip(*(zip(*state) for state in states)):               # K tuples of one seed's arrays
        X, y = task.held_out.sample(FRESH, rng)
        rows.append([wrong_share(y * predict(X, *arrays)) for arrays in seed])
    return np.array(rows).transpose(2, 0, 1)


def measure(method, task, pretrained, seeds, at, start="zero", multiple=1.0, callback=None):
    """`Measured` of one method on one task, looked at after at[k] samples (see `lengths`).

    `pretrained` has v and W (method "pretrained" only, as are the next two); `start` says whether v starts from "zero"
    or "pretrained"; `multiple` is the step size in units of `default_step`.  `callback(n)` reports progress of SGD.
    The step sizes of the other methods are those of `baselines`, best by the mistakes made in all.
    Raises TypeError or ValueError, naming the argument; also for fewer than two `seeds`, which have no scatter.
    """
    choice("method", method, METHODS), choice("start", start, ("zero", "pretrained"))
    d, D = instance("task", task, Patterned).d, task.D
    multiple = real("multiple", multiple, 0.0, open_least=True)
    seeds, at = integers("seeds", seeds, 0, fewest=2), rising("at", at)
    if method == "pretrained" and not (hasattr(pretrained, "v") and hasattr(pretrained, "W")):
        raise TypeError(f"pretrained: got {type(pretrained).__name__}, expected something with v and W")
    rng = np.random.default_rng([seeds[0], METHODS.index(method)])
    if method == "max_likelihood":
        return _likelihood(task, seeds, at, rng)

    def score(run):
        return run.mistakes[:, -1].mean()
    if method == "logistic_sgd":
        multiple, run, scores = baselines.logistic_sgd(task, seeds, at, score, callback)
        last, error = _linear_errors(task, run.states, rng)
        return Measured(method, at, run.mistakes, last, error, multiple, _grid(scores))
    if method == "from_zero":
        multiple, run, scores = baselines.sgd_from_zero(task, seeds, at, score, callback)
        details = _grid(scores)
        before = np.zeros((d + D, d + D))
    else:
        v = pretrained.v if start == "pretrained" else np.zeros(d + D)
        run = train_attention(task, v, pretrained.W, multiple * default_step(d, D), seeds, at, callback)
        details, before = {}, pretrained.W
    last, error = _attention_errors(task, run.states, rng)
    after = [relevant_attention(task.held_out, W, 500, rng)[0] for W in run.states[-1][1]]
    details |= {"attention_before": relevant_attention(task.held_out, before, 4000, rng),
                "attention_after": (np.mean(after), np.std(after, ddof=1) / np.sqrt(len(after)))}
    return Measured(method, at, run.mistakes, last, error, multiple, details)


def _grid(scores):
    return {"grid": list(scores), "grid_mistakes": list(scores.values())}


def online_mistakes(at, error):
    """Expected mistakes (S, K) in the first at[k] samples of a method that is wrong with probability error[:, k] after
    at[k] samples: the sum over i < n of the error after i samples, which is 1 before the first (y f = 0) and taken as
    linear between the places that were looked at.
    """
    at, error = np.concatenate([[0], at]), np.concatenate([np.ones((len(error), 1)), error], axis=1)
    left, right, gap = error[:, :-1], error[:, 1:], np.diff(at)
    # the sum of the linear interpolant over i = at[k], .., at[k+1] - 1
    return np.cumsum(left * (gap + 1) / 2 + right * (gap - 1) / 2, axis=1)


def _likelihood(task, seeds, at, rng):
    """Maximum likelihood on the first n samples of each seed, for every n of `at`.

    Details show what the two choices made here are worth: `stopped`, the mean test error at the first n >= d D at gtol of
    1e-6, as everywhere, and of 1e-4; `interpolation`, the relative change of the mistakes in all from every second place.
    """
    look = min(np.searchsorted(at, task.d * task.D), len(at) - 1)
    fits, rough = [], []
    for seed in seeds:
        X, y = task.sample(int(at[-1]), np.random.default_rng(seed))
        fits.append([baselines.maximum_likelihood(X[:n], y[:n]) for n in at])
        rough.append(baselines.maximum_likelihood(X[:at[look]], y[:at[look]], gtol=1e-4).w)
    last, error = _linear_errors(task, [(np.stack([fit.w for fit in column]),) for column in zip(*fits)], rng)
    early, _ = _linear_errors(task, [(np.stack(rough),)], rng)
    mistakes, half = online_mistakes(at, last), slice(1 - len(at) % 2, None, 2)
    coarse = online_mistakes(at[half], last[:, half])
    return Measured("max_likelihood", at, mistakes, last, error, float("nan"),
                    {"separates": np.mean([[fit.separates for fit in row] for row in fits], axis=0),
                     "interpolation": coarse[:, -1].mean() / mistakes[:, -1].mean() - 1,
                     "stopped_at_n": at[look], "stopped": (last[:, look].mean(), early.mean())})
