"""What is the second derivative of the population loss at a symmetric state, block by block?

At a state that the symmetries of the data law leave fixed, the second derivative H commutes with them, so it falls
into blocks, one for each kind of perturbation (Schur's lemma).  A block is given by its directions (unit vectors of
(v, W) that span one copy of its kind), its matrix H[p, q] on them, and the number of copies.

    Shapes: N inputs with the label flipped to +1, the relevant group first among the D tokens
        m (N, D) features along v*   e, e' (N, D) along two unit vectors across v*   K (N, D, D) Gram matrix across v*
        A, S, G (N, D, D) key i, query j;  a direction is a value change du (N, D) or a score change dA (N, D, D)

Names of blocks: the letters that move; "across" v*; "uneven" over the irrelevant groups (summing to zero over them);
"pairs": uneven in key and query.  Source: derivations/10_stability.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaincinv, ndtr, stdtrit

from gsref.arguments import choice, instance, integer, real
from gsref.order import OrderParameters, check_fits, position_scores
from gsref.population import MODES
from gsref.position_only import EPS, RELATIVE_ERROR, half_normal_integrals, position_attention
from gsref.problem import Problem
from gsref.quadrature import sobol_normals

MOVES = {"full": ("v1", "v2", "W11", "W12", "W21", "W22"), "position_only": ("v1", "v2", "W22")}
SCRAMBLINGS = 8
REACH = 9.0                                    # standard deviations of the relevant feature


@dataclass(frozen=True)
class Block:
    """One kind of perturbation: H on an orthonormal basis of one copy, its error (2-norm, absolute), copies."""

    name: str
    matrix: np.ndarray
    error: float
    copies: int

    @property
    def curvatures(self):
        """Eigenvalues of H, rising; each is right to `error` (Weyl)."""
        return np.linalg.eigvalsh(self.matrix)


class Points(NamedTuple):
    """Inputs with weights that add up to one; shapes in the head of the module."""

    m: np.ndarray
    e: np.ndarray
    e2: np.ndarray
    K: np.ndarray
    weight: np.ndarray

    def part(self, rows):
        return Points(*(array[rows] for array in self))


def second_derivative(problem, order, mode="full", rtol=1e-2, max_nodes=2**16, seed=0):
    """The blocks off the symmetric manifold, a list of `Block`: H of the population loss at `order`.

    mode "full": v and W move.  mode "position_only": attention is a function of positions alone, so v and W22 move.
    There every entry is a closed form, in full mode a mean over scrambled Sobol points: 8 scramblings, doubled until
    the largest error is below rtol times the largest curvature, or there are `max_nodes` points. Raises TypeError or
    ValueError, naming the argument.  Source: derivations/10_stability.md.
    """
    instance("problem", problem, Problem)
    check_fits(problem, instance("order", order, OrderParameters))
    rtol = real("rtol", rtol, 0.0, 1.0, open_least=True)
    max_nodes, seed = integer("max_nodes", max_nodes, 128), integer("seed", seed, 0)
    if choice("mode", mode, MODES) == "position_only":
        if (order.a, order.b) != (0.0, 0.0):
            raise ValueError(f"order: got a = {order.a!r}, b = {order.b!r}, expected 0 in position-only mode")
        return position_only_blocks(problem, order)
    return sampled_blocks(problem, order, rtol, max_nodes, seed)


# ---- the directions

def copies(problem, kind):
    """How many copies of each kind of perturbation there are  [stability.2]."""
    k, n = problem.D - 1, problem.d - 1
    uneven = max(k - 1, 0)
    return {"path": 1, "even": 1, "uneven": uneven, "across even": n, "across uneven": n * uneven, "across": n,
            "across symmetric": max(n * (n + 1) // 2 - 1, 0), "across antisymmetric": n * (n - 1) // 2,
            "W22 uneven": uneven, "symmetric pairs": max(k * (k - 3) // 2, 0),
            "antisymmetric pairs": uneven * (k - 2) // 2}[kind]


KINDS = ("even", "uneven", "across even", "across uneven", "across", "across symmetric", "across antisymmetric",
         "W22 uneven", "symmetric pairs", "antisymmetric pairs")


def directions(problem, points, kind):
    """Orthonormal directions of one copy of `kind`: a list of (letter, du (N, D) or dA (N, D, D))  [stability.3].

    In score units a unit of v2 is sqrt(kappa) long, of W12 and W21 too, of W22 kappa: P / sqrt(kappa) is orthogonal.
    """
    D, n, k, kappa = problem.D, problem.d - 1, problem.D - 1, problem.kappa
    m, e, e2, K, _ = points
    root = np.sqrt(kappa)
    r, o, t, t2 = np.zeros((4, D))             # the relevant group; all others alike; two uneven patterns
    r[0] = 1.0
    o[1:] = 1 / np.sqrt(max(k, 1))
    if k > 1:
        t[1:3] = np.array([1, -1]) / np.sqrt(2)
    if k > 3:
        t2[3:5] = np.array([1, -1]) / np.sqrt(2)

    def value(pattern):
        return ("v2", np.broadcast_to(root * pattern, m.shape))

    def key_feature(x, pattern):
        return ("W12", root * x[:, :, None] * pattern)

    def query_feature(pattern, x):
        return ("W21", root * pattern[:, None] * x[:, None, :])

    def features(x, z):
        return x[:, :, None] * z[:, None, :]

    def positions(N):
        return ("W22", np.broadcast_to(kappa * N, K.shape))

    evens = [r, o] if k else [r]
    if kind == "even":
        return ([value(p) for p in evens] + [key_feature(m, p) for p in evens] + [query_feature(p, m) for p in evens])
    if kind == "uneven":
        return [value(t), key_feature(m, t), query_feature(t, m)]
    if kind == "across even":
        return [key_feature(e, p) for p in evens] + [query_feature(p, e) for p in evens]
    if kind == "across uneven":
        return [key_feature(e, t), query_feature(t, e)]
    if kind == "across":
        return [("v1", e), ("W11", features(m, e)), ("W11", features(e, m))]
    if kind in ("across symmetric", "across antisymmetric"):
        sign = 1 if kind == "across symmetric" else -1
        return [("W11", (features(e, e2) + sign * features(e2, e)) / np.sqrt(2))]
    if kind == "W22 uneven":
        own = np.diag(t) - (np.outer(t, o) + np.outer(o, t)) / np.sqrt(k)
        basis = [np.outer(r, t), np.outer(t, r), np.outer(t, o), np.outer(o, t)]
        return [positions(N) for N in basis + ([own / np.sqrt(1 - 2 / k)] if k > 2 else [])]
    if kind == "symmetric pairs":
        return [positions((np.outer(t, t2) + np.outer(t2, t)) / np.sqrt(2))]
    if kind == "antisymmetric pairs":
        cycle = np.zeros((D, D))
        cycle[[1, 2, 3], [2, 3, 1]] = 1 / np.sqrt(6)
        return [positions(cycle - cycle.T)]
    others = np.diag((o > 0).astype(float))
    path = [("v1", m), ("W11", features(m, m))] + ([("W11", K / np.sqrt(n))] if n else []) + [positions(np.outer(r, r))]
    if k:
        path += [positions(np.outer(r, o)), positions(np.outer(o, r)), positions(others / np.sqrt(k))]
    if k > 1:
        path.append(positions((k * np.outer(o, o) - others) / np.sqrt(k * (k - 1))))
    return path


def name_of(kind, letters):
    """The name that a block has in reports: the letters that move, and how."""
    how = [word for word in kind.split() if word not in ("even", "W22")]
    return " ".join([",".join(dict.fromkeys(letters)), *how])


# ---- any finite set of inputs

def blocks_at(problem, order, points, mode="full", kinds=KINDS):
    """[(kind, letters, matrix)]: H of the weighted mean over `points`  [stability.1].

        H[p, q] = E[ l''(f) f_p f_q + l'(f) f_pq ]
        f_p  = sum_ij S du_i (value)  or  sum_ij G dA_p (score)
        f_pq = sum_ij S du_i (dA_q - mean_q) (value, score)  or  sum_ij G (dA_p - mean_p)(dA_q - mean_q) (two scores)

    with `mean` the attention-weighted mean over keys: third central moments of (u, dA_p, dA_q) under each column of S.
    """
    D = problem.D
    total = {}
    for part in _chunks(points, D):
        S, U, f = _attention_at(problem, order, part)
        G = S * U
        c, curve = part.weight * expit(-f), part.weight * expit(f) * expit(-f)
        for kind in kinds:
            if not copies(problem, kind):
                continue
            moving = [pair for pair in directions(problem, part, kind) if pair[0] in MOVES[mode]]
            if not moving:
                continue
            letters = [letter for letter, _ in moving]
            values = [array for letter, array in moving if letter.startswith("v")]
            scores = [array - np.einsum("nij,nij->nj", S, array)[:, None, :] for letter, array in moving
                      if letter.startswith("W")]
            first = [np.einsum("nij,ni->n", S, du) for du in values] + [np.einsum("nij,nij->n", G, dA) for dA in scores]
            first = np.array(first)
            H = (curve * first) @ first.T
            p = len(values)
            if scores:
                flat = np.array(scores).reshape(len(scores), -1)
                H[p:, p:] -= (flat * (c[:, None, None] * G).ravel()) @ flat.T
                for i, du in enumerate(values):
                    H[i, p:] -= flat @ (c[:, None, None] * S * du[:, :, None]).ravel()
                H[p:, :p] = H[:p, p:].T
            key = (kind, tuple(letters))
            total[key] = total.get(key, 0) + H
    return [(kind, letters, H) for (kind, letters), H in total.items()]


def _chunks(points, D):
    """Parts of `points` whose largest array (one direction) has about 2^17 numbers."""
    size = max(1, 2**17 // D**2)
    return (points.part(slice(i, i + size)) for i in range(0, len(points.m), size))


def _attention_at(problem, order, points):
    """S (N, D, D), u_i - ubar_j (N, D, D), f (N,) on the symmetric manifold."""
    m, _, _, K, _ = points
    first = Problem(problem.d, problem.D, problem.sigma)       # the same problem with the relevant group first
    A = order.a * m[:, :, None] * m[:, None, :] + order.b * K + position_scores(first, order)
    S = np.exp(A - A.max(axis=1, keepdims=True))
    S /= S.sum(axis=1, keepdims=True)
    u = order.alpha * m
    mean = np.einsum("nij,ni->nj", S, u)
    return S, u[:, :, None] - mean[:, None, :], mean.sum(axis=1)


def points_of(problem, X, y):
    """The samples X (n, D, d), y (n,) as `Points` of equal weight (the flip (X, y) -> (-X, -y) leaves H alone)."""
    v_star, r = problem.direction, problem.relevant
    X = np.concatenate([X[:, [r]], np.delete(X, r, axis=1)], axis=1) * y[:, None, None]
    frame = np.linalg.svd(v_star[None])[2][1:]                 # an orthonormal basis across v*
    across = X @ frame.T
    padded = np.concatenate([across, np.zeros((*X.shape[:2], 2))], axis=2)
    return Points(X @ v_star, padded[..., 0], padded[..., 1], across @ across.transpose(0, 2, 1),
                  np.full(len(X), 1 / len(X)))


# ---- full mode: the law itself, by scrambled Sobol points

def sampled_blocks(problem, order, rtol=1e-2, max_nodes=2**16, seed=0, mode="full", kinds=KINDS):
    """`Block`s from scrambled Sobol points, with Student's 99.9 % bound on the norm of the error  [stability.4].

    mean_s H_s differs from H by less than t |H_s - mean| / sqrt(8) in the Frobenius norm, and by Weyl's inequality so
    does every eigenvalue.
    """
    bound = stdtrit(SCRAMBLINGS - 1, 0.9995) / np.sqrt(SCRAMBLINGS)
    sums, first, count = None, 0, min(128, max_nodes // SCRAMBLINGS)
    while True:
        drawn = []
        for s in range(SCRAMBLINGS):
            points = law_points(problem, order, first, count, SCRAMBLINGS * seed + s)
            drawn.append(blocks_at(problem, order, points, mode, kinds))
        found = [np.array([one[i][2] for one in drawn]) for i in range(len(drawn[0]))]
        sums = found if sums is None else [(a * first + b * count) / (first + count) for a, b in zip(sums, found)]
        first, count = first + count, first + count
        result = []
        for (kind, letters, _), H in zip(drawn[0], sums):
            error = bound * np.sqrt(H.var(axis=0, ddof=1).sum())
            result.append(Block(name_of(kind, letters), H.mean(axis=0), float(error), copies(problem, kind)))
        largest = max(np.abs(block.curvatures).max() for block in result)
        if max(block.error for block in result) <= rtol * largest or 2 * first * SCRAMBLINGS > max_nodes:
            return result


def law_points(problem, order, first, count, seed):
    """`count` scrambled Sobol points of the law.

    The relevant feature is stretched as in `quadrature.half_normal_rule`, with its density as the weight: l'' lives
    in a layer of width 1/(slope of f) at the label boundary.  Beyond D + 2 directions across v*, two are drawn and
    the Gram matrix of the rest is L L^T, L lower triangular with chi variables on its diagonal (Bartlett).
    """
    D, n, sigma = problem.D, problem.d - 1, problem.sigma
    wide = n > D + 2
    z = sobol_normals(D + (2 * D + D * (D + 1) // 2 if wide else D * n), first, count, seed)
    layer = 1 / max(D * abs(order.alpha) * sigma, 1.0)
    top = np.arcsinh(REACH / layer)
    stretched = top * ndtr(z[:, 0])
    m_r = layer * np.sinh(stretched)
    weight = top * layer * np.cosh(stretched) * np.sqrt(2 / np.pi) * np.exp(-0.5 * m_r**2) / count
    m = np.concatenate([m_r[:, None], z[:, 1:D]], axis=1)
    if wide:
        pair, rest = z[:, D:3 * D].reshape(count, 2, D), z[:, 3 * D:]
        L = np.zeros((count, D, D))
        L[:, np.arange(D), np.arange(D)] = np.sqrt(2 * gammaincinv((n - 2 - np.arange(D)) / 2, ndtr(rest[:, :D])))
        rows, columns = np.tril_indices(D, -1)
        L[:, rows, columns] = rest[:, D:]
        across = np.concatenate([pair.transpose(0, 2, 1), L], axis=2)
    else:
        across = np.concatenate([z[:, D:].reshape(count, n, D).transpose(0, 2, 1), np.zeros((count, D, 2))], axis=2)
    return Points(sigma * m, sigma * across[..., 0], sigma * across[..., 1],
                  sigma**2 * across @ across.transpose(0, 2, 1), weight)


# ---- position-only: attention is not random, and every entry is a closed form

def position_integrals(problem, order):
    """What the closed forms are made of: attention S, E'' = E[s'(f)], X = E[c m_r] - E[c m_i], relative error of both.

    E[c m_i] = -alpha sigma^2 B E'' by Stein's lemma; E'' and E[c m_r] are the half-normal integrals of `position_only`.
    """
    k, s, alpha, S = problem.D - 1, problem.sigma, order.alpha, position_attention(problem.D, order)
    T, B = S.received(problem.D)
    tau = B * np.sqrt(k)
    omega = np.hypot(T, tau)
    _, J, curve = half_normal_integrals(abs(alpha) * s * omega)
    c_r = tau / omega * tau / (omega + T) / np.sqrt(2 * np.pi) + T / omega * J
    size = c_r
    if alpha < 0:
        c_r, size = np.sqrt(2 / np.pi) - c_r, np.sqrt(2 / np.pi) + c_r
    pull = alpha * s * B * curve
    unit = RELATIVE_ERROR + EPS * (abs(order.m_rr) + abs(order.m_ro) + abs(order.m_oo) + np.log(problem.D))
    return S, curve, s * (c_r + pull), unit * (size + abs(pull)) / abs(c_r + pull)


def position_only_blocks(problem, order):
    """The blocks of position-only mode in closed form  [stability.5].

    With T and B the attention that the relevant and one irrelevant group receive, E'' = E[s'(f)], X = E[c m_r] - E[c
    m_i]:

        v2            kappa E'' (T, B sqrt(k)) (T, B sqrt(k))^T
        v1 across     sigma^2 E'' (T^2 + k B^2)
        W22 uneven    kappa^2 (alpha^2 sigma^2 E'' h h^T - alpha X q),   `uneven_moments`
        W22 pairs     kappa^2 alpha X S_rj S_ij
    """
    k, s, kappa, alpha = problem.D - 1, problem.sigma, problem.kappa, order.alpha
    S, curve, X, relative = position_integrals(problem, order)
    T, B = S.received(problem.D)
    received = np.array([T, B * np.sqrt(k)][:min(problem.D, 2)])
    found = [("even", ["v2"], kappa * curve * np.outer(received, received)),
             ("uneven", ["v2"], np.zeros((1, 1))),
             ("across", ["v1"], np.array([[s**2 * curve * received @ received]]))]
    if k > 1:
        h, q = uneven_moments(S, k)
        keep = slice(0, 5 if k > 2 else 4)
        uneven = kappa**2 * (alpha**2 * s**2 * curve * np.outer(h, h) - alpha * X * q)
        pairs = np.array([[kappa**2 * alpha * X * S.ro * S.io]])
        found += [("W22 uneven", ["W22"], uneven[keep, keep]),
                  ("symmetric pairs", ["W22"], pairs), ("antisymmetric pairs", ["W22"], pairs)]
    return [Block(name_of(kind, letters), H, float(relative * np.abs(H).sum()), copies(problem, kind))
            for kind, letters, H in found if copies(problem, kind)]


def uneven_moments(S, k):
    """h (5,) and q (5, 5) of the directions e_r t^T, t e_r^T, t o^T, o t^T and the diagonal one  [stability.6].

    For a pattern N of scores, h t_i = sum_j S_ij (N_ij - mean_j N) and q = sum_j S_rj [(N_rj - mean_j N)(N'_rj -
    mean_j N') - cov_j(N, N')]: with a = N_rj / t_j, b = mean_j N / t_j, Q = sum_ij S_ij N_ij N'_ij this is q = S_rj
    (a a' - a b' - b a' + 2 b b' - Q) over the irrelevant queries, and -S_rr S_ir for t e_r^T.
    """
    root, rest, apart = np.sqrt(k), S.oo + (k - 1) * S.io, S.oo - S.io
    a = np.array([1.0, 0, 0, 0, 0])
    b = np.array([S.ro, 0, apart / root, rest / root, S.oo])
    h = np.array([-S.ro * apart, S.orr, (rest - apart**2) / root, S.ro * apart / root, S.oo * (1 - apart)])
    Q = np.diag([S.ro, 0, rest / k, rest / k, S.oo])
    Q[2, 3] = Q[3, 2] = apart / k
    Q[2:4, 4] = Q[4, 2:4] = S.oo / root
    q = S.ro * (np.outer(a, a) - np.outer(a, b) - np.outer(b, a) + 2 * np.outer(b, b) - Q)
    q[1, 1] = -S.rr * S.orr
    basis = np.eye(5)
    basis[4, 2:4] = -1 / root                  # the diagonal pattern less its parts along t o^T and o t^T
    basis[4] /= np.sqrt(1 - 2 / k) if k > 2 else 1.0
    return basis @ h, basis @ q @ basis.T
