"""What does a run measure?  One function a measurement: settings in, a mapping of arrays out.

Every function takes `keep`, which shows progress and holds the state of unfinished training (`run_metalearner.Keep`),
and draws from generators seeded by (seed, name of the measurement, place), so that nothing depends on the order.
Shapes: curves (n,) over context lengths M.  Source: derivations/08_metalearner.md.
"""

import zlib
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from gsref.metalearner.accuracy import Contexts
from gsref.metalearner.baselines import FULL_MLE, PROJECTED_MLE
from gsref.metalearner.bayes import FLIPS_MOST, optimal_accuracy
from gsref.metalearner.limit import descend_population, limit_of_training
from gsref.metalearner.max_margin import descend_on_kernel, direction_gap, full_kernel, max_margin, offset
from gsref.metalearner.population import Order, error_rate
from gsref.metalearner.problem import MEMORY, MetaProblem
from gsref.metalearner.sample_size import examples_needed, examples_needed_sampled, noise_of_one_step
from gsref.metalearner.svm import svms
from gsref.metalearner.training import combine, train, trainer

ACCURACY = 0.9                                 # the accuracy that "examples needed" refers to
CHUNK = 100                                    # training steps between two checkpoints
SVM_NUMBERS = 2_000_000                        # numbers in the contexts that are solved together: 16 MB


@dataclass(frozen=True)
class Figure:
    """Sizes of one accuracy figure: B tasks of N examples in training, T test contexts (T_svm for the SVM)."""

    d: int
    k: tuple
    R: tuple
    B: int
    M: tuple
    N: int = 40
    T: int = 2000
    T_svm: int = 0
    eta: float = 0.01
    steps: int = 300


def generator(seed, *place):
    """A generator that depends on `seed` and on the words and numbers of `place` alone."""
    return np.random.default_rng([seed, zlib.crc32(repr(place).encode())])


def accuracy_figure(figure, k, R, seed, keep, path=True, memory=MEMORY):
    """Train on B tasks, then accuracy against M beside the exact baselines, on the same contexts.

    trained (n,), minus_full, minus_projected (n,): paired differences; each with `_error`. full, projected (n,): exact.
    losses (steps,), order (3,): p, q of W and the norm of the rest; with `path` also population_loss, population_p
    (steps + 1,) and limit (3,): p*, its error, the loss there.
    """
    problem = MetaProblem(figure.d, k, R)
    rng = generator(seed, "training", figure.d, figure.B, k, R)
    tasks = problem.sample_tasks(figure.B, figure.N, rng, memory=memory)
    saved = keep.load()
    run = trainer(tasks, figure.eta, figure.steps, state=None if saved is None else saved["state"], memory=memory)
    run.losses = [] if saved is None else saved["losses"].tolist()
    while len(run.losses) < figure.steps:
        keep.show(0.9 * len(run.losses) / figure.steps)
        run.advance(min(CHUNK, figure.steps - len(run.losses)))
        keep.save({"state": run.state, "losses": np.array(run.losses)})
    losses, W = np.array(run.losses), run.W
    del run
    contexts = Contexts(problem, figure.T, generator(seed, "contexts", figure.d, k, R))
    trained = contexts.curve(W, figure.M)
    result = {"M": trained.M, "trained": trained.mean, "trained_error": trained.error}
    for name, order in (("full", FULL_MLE), ("projected", PROJECTED_MLE)):
        difference = replace(trained, each=trained.each - contexts.curve(order.to_matrix(problem), figure.M).each)
        result |= {f"minus_{name}": difference.mean, f"minus_{name}_error": difference.error,
                   name: np.array([1.0 - error_rate(problem, order, M)[0] for M in figure.M])}
    order, rest = Order.from_matrix(W, problem)
    result |= {"losses": losses, "order": np.array([order.p, order.q, rest])}
    if path:
        orders, population_loss = descend_population(problem, figure.eta, figure.steps, figure.N)
        limit = limit_of_training(problem, figure.N)
        result |= {"population_loss": population_loss, "population_p": orders[:, 0],
                   "limit": np.array([limit.p, limit.error, limit.loss])}
    return result


def svm_figure(figure, k, R, seed, keep):
    """Accuracy of the SVM on T_svm contexts: svm, svm_origin (n,) with and without intercept, `_error`s, and `residual`,
    the largest violation of a condition met.  A shorter context is the beginning of a longer one."""
    problem, most = MetaProblem(figure.d, k, R), max(figure.M)
    rng = generator(seed, "svm", figure.d, k, R)
    each, residual = np.empty((len(figure.M), figure.T_svm, 2)), 0.0
    block = max(1, SVM_NUMBERS // (most * figure.d))
    for start in range(0, figure.T_svm, block):
        keep.show(start / figure.T_svm)
        part = slice(start, min(start + block, figure.T_svm))
        mu = problem.sample_means(part.stop - start, rng)
        X, y = problem.sample_context(mu, most, rng)
        for i, M in enumerate(figure.M):
            for j, intercept in enumerate((True, False)):
                rule = svms(X[:, :M], y[:, :M], intercept)
                each[i, part, j] = rule.accuracy(mu)
                residual = max(residual, float(rule.residual.max()))
    mean, error = each.mean(axis=1), each.std(axis=1, ddof=1) / np.sqrt(figure.T_svm)
    return {"M": np.array(figure.M, float), "svm": mean[:, 0], "svm_error": error[:, 0], "svm_origin": mean[:, 1],
            "svm_origin_error": error[:, 1], "residual": np.array(residual)}


def direction(problem, B, N, eta, last, seed, keep):
    """Gradient descent against the max-margin solution over 10^0..10^last steps on B tasks.

    steps (n,), gap (n,) | W/|W| - W_hat/|W_hat| |; predicted (n,): the gap of log(n) W_hat + W_off, nan unless every
    task is on the support; kkt (4,) residuals; support: number of tasks on it.
    """
    K = full_kernel(problem.sample_tasks(B, N, generator(seed, "direction", problem.d, problem.k, B)))
    solution = max_margin(K)
    steps = np.unique(np.round(10.0 ** np.arange(0.0, last + 0.01, 0.5)).astype(np.int64))
    alphas = descend_on_kernel(K, eta, steps.tolist())
    keep.show(0.9)
    gap = np.array([direction_gap(K, alpha, solution.alpha) for alpha in alphas])
    predicted = np.full(len(steps), np.nan)
    if solution.support.all():
        beta = offset(K, solution, eta)
        predicted = np.array([direction_gap(K, np.log(n) * solution.alpha + beta, solution.alpha) for n in steps])
    return {"steps": steps, "gap": gap, "predicted": predicted, "support": np.array(int(solution.support.sum())),
            "tasks": np.array(B), "norm": np.array(solution.norm),
            "kkt": np.array([solution.primal, solution.dual, solution.slackness, solution.gap])}


def published_steps(problem, B, N, eta, steps, seed, keep):
    """What the published number of steps is: cosines of W_steps with W_1 and with W_hat, and the share of tasks right.

    cosine_first, cosine_margin, right, least_margin (|W| = 1, as a share of the largest possible), kkt (4,);
    accuracy, accuracy_error (3,) after N examples: of W_1, W_steps and W_hat.
    """
    tasks = problem.sample_tasks(B, N, generator(seed, "published", problem.d, problem.k, B))
    K = full_kernel(tasks)
    keep.show(0.2)
    solution = max_margin(K)
    keep.show(0.7)
    alpha = descend_on_kernel(K, eta, [1, steps], exact_steps=steps)

    def cosine(a, b):
        return float(a @ K @ b) / np.sqrt(float(a @ K @ a) * float(b @ K @ b))
    t = K @ alpha[1]
    contexts = Contexts(problem, 2000, generator(seed, "published contexts", problem.d))
    curves = [contexts.curve(combine(tasks, a), [N]) for a in (*alpha, solution.alpha)]
    return {"steps": np.array(steps), "accuracy": np.array([c.mean[0] for c in curves]),
            "accuracy_error": np.array([c.error[0] for c in curves]),
            "cosine_first": np.array(cosine(*alpha)), "cosine_margin": np.array(cosine(alpha[1], solution.alpha)),
            "right": np.array(float((t > 0).mean())), "tasks": np.array(B),
            "least_margin": np.array(float(t.min()) / np.sqrt(float(alpha[1] @ t)) * solution.norm),
            "kkt": np.array([solution.primal, solution.dual, solution.slackness, solution.gap])}


def sample_sizes(k, d, R, keep):
    """Examples needed, exact: by the learner that knows the subspace (R, k), and by the best that does not (R, d)."""
    known = np.array([[examples_needed(MetaProblem(2 * dim, dim, r), PROJECTED_MLE, ACCURACY) for dim in k] for r in R])
    keep.show(0.5)
    context_only = np.array([[examples_needed(MetaProblem(dim, 1, r), FULL_MLE, ACCURACY) for dim in d] for r in R])
    return {"k": np.array(k), "d": np.array(d), "R": np.array(R, float), "known": known, "context_only": context_only}


def tasks_needed(k, R, N, d, B, T, seed, keep, eta=0.01, steps=300, blocks=20):
    """Examples that the *trained* W needs, as a ratio to the projected MLE on the same contexts.

    ratio, ratio_error (len(d), len(B)), the error a jackknife over `blocks` groups of contexts; law: the derived
    ratio - 1; projected, context_only (len(d),): the exact numbers of the projected and of the full MLE.
    """
    ratio, error = np.empty((2, len(d), len(B)))
    work = np.cumsum([0.0, *(float(dim) ** 2 * b for dim in d for b in B)])
    for i, dim in enumerate(d):
        problem = MetaProblem(dim, k, R)
        contexts = Contexts(problem, T, generator(seed, "tasks needed", dim))
        groups = [contexts.without(part) for part in np.array_split(np.arange(T), blocks)]
        base = PROJECTED_MLE.to_matrix(problem)
        reference = [examples_needed_sampled(group, base, ACCURACY)[0] for group in (contexts, *groups)]
        for j, b in enumerate(B):
            keep.show(work[i * len(B) + j] / work[-1])
            tasks = problem.sample_tasks(b, N, generator(seed, "tasks needed", dim, b))
            W = train(tasks, eta, steps).W
            needed = [examples_needed_sampled(group, W, ACCURACY)[0] for group in (contexts, *groups)]
            ratios = np.array(needed) / reference
            ratio[i, j], rest = ratios[0], ratios[1:]
            error[i, j] = np.sqrt((blocks - 1) * np.mean((rest - rest.mean()) ** 2))
    exact = examples_needed(problem, PROJECTED_MLE, ACCURACY)
    law = [[noise_of_one_step(MetaProblem(dim, k, R), N, b, exact) / (1.0 - ndtri(ACCURACY) ** 2 / R ** 2) for b in B]
           for dim in d]
    return {"d": np.array(d), "B": np.array(B), "k": np.array(k), "R": np.array(R), "N": np.array(N), "ratio": ratio,
            "ratio_error": error, "law": np.array(law), "projected": np.array(exact),
            "context_only": np.array([examples_needed(MetaProblem(dim, k, R), FULL_MLE, ACCURACY) for dim in d])}


def predecessor(d, N, M, T, flips, seed, keep, T_optimal=200):
    """The setting of Frei and Vardi (2025): k = d, R_train = 5 sqrt(d), R_test = d^0.3, flipped labels at test.

    accuracy, accuracy_error (len(d), len(M)) on clean queries of W trained on B = d tasks; full (len(d), len(M)): the
    full MLE, exact; optimal, gain (len(d), len(M)): the Bayes rule on T_optimal contexts, and by how much it is better
    than the full MLE there (paired), with `_error`s, nan where M is too long to sum over all flips; memorised (len(d),):
    the share of flipped context labels that the trained rule reproduces at the longest context, with `_error`.
    """
    accuracy, error, full, *best = np.full((7, len(d), len(M)), np.nan)
    memorised, memorised_error = np.empty((2, len(d)))
    for i, dim in enumerate(d):
        keep.show(i / len(d))
        tasks = MetaProblem(dim, dim, 5.0 * np.sqrt(dim)).sample_tasks(dim, N, generator(seed, "predecessor", dim))
        W = train(tasks).W
        rng = generator(seed, "predecessor test", dim)
        problem = MetaProblem(dim, dim, dim ** 0.3, flips)
        curve = Contexts(problem, T, rng).curve(W, M)
        accuracy[i], error[i] = curve.mean, curve.error
        full[i] = [1.0 - error_rate(problem, FULL_MLE, m)[0] for m in M]
        for j, m in enumerate(m for m in M if m <= FLIPS_MOST):
            found = optimal_accuracy(problem, m, T_optimal, generator(seed, "predecessor optimal", dim, m), FULL_MLE)
            for rows, value in zip(best, (found.accuracy, found.error, found.gain, found.gain_error)):
                rows[i, j] = value
        right, flipped = 0, 0
        for mu in problem.sample_means(100, rng):
            X, labels, clean = (a[0] for a in problem.sample_context(mu[None], M[-1], rng, with_clean=True))
            wrong = labels != clean
            right += int(((X @ (W.T @ (labels @ X)))[wrong] * labels[wrong] > 0).sum())
            flipped += int(wrong.sum())
        memorised[i] = right / flipped
        memorised_error[i] = np.sqrt(memorised[i] * (1.0 - memorised[i]) / flipped)
    return {"d": np.array(d), "M": np.array(M, float), "accuracy": accuracy, "accuracy_error": error, "full": full,
            **dict(zip(("optimal", "optimal_error", "gain", "gain_error"), best)),
            "memorised": memorised, "memorised_error": memorised_error, "flips": np.array(flips)}
