"""Which nodes and weights integrate a symmetric function of many independent, equally distributed variables?

A Smolyak rule over k variables ("tokens"), summed by orbits: a symmetric function takes one value on all arrangements
of a multiset of nodes, so that one evaluation a multiset is enough.  The number of multisets depends on the level
alone, not on k.  This module knows no model.  Source: derivations/06_quadrature.md.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class OrbitGroup:
    """All orbits with q tokens away from the base.

    nodes (n, q, c): n orbits, q tokens, c coordinates of a token; weights (n,), signed, multiplicities included.
    """

    nodes: np.ndarray
    weights: np.ndarray

    @property
    def q(self):
        return self.nodes.shape[1]


def partitions(total, largest=None):
    """The partitions of an integer into positive parts, each a non-increasing tuple."""
    if total == 0:
        yield ()
        return
    for part in range(min(total, largest or total), 0, -1):
        for rest in partitions(total - part, part):
            yield (part,) + rest


def arrangements(partition, k):
    """k! / ((k - |pi|)! prod_v mult_v(pi)!): in how many ways k tokens can carry the nonzero levels pi  [quad.2]."""
    count = math.perm(k, len(partition))
    for level in set(partition):
        count //= math.factorial(partition.count(level))
    return count


def _differences(base, rules):
    """Delta_l = Q_l - Q_{l-1} as mappings node -> weight; Q_0 is the single node `base`."""
    measures = [{base: 1.0}]
    for nodes, weights in rules:
        rows = np.reshape(nodes, (len(weights), -1))
        measures.append({tuple(map(float, x)): float(w) for x, w in zip(rows, weights)})
    result = []
    for finer, coarser in zip(measures[1:], measures):
        delta = dict(finer)
        for node, weight in coarser.items():
            delta[node] = delta.get(node, 0.0) - weight
        result.append(delta)
    return result


def _times(left, right):
    """Product of two symmetric measures, each a mapping from a multiset (sorted tuple of nodes) to a weight."""
    result = {}
    for a, wa in left.items():
        for b, wb in right.items():
            key = tuple(sorted(a + b))
            result[key] = result.get(key, 0.0) + wa * wb
    return result


def _term(deltas, partition):
    """Product of Delta_l over the levels l of one partition, as a mapping from multisets of nodes to weights."""
    term = {(): 1.0}
    for l in sorted(set(partition)):
        power = {(): 1.0}
        for _ in range(partition.count(l)):
            power = _times(power, deltas[l - 1])
        term = _times(term, power)
    return term


def grouped_orbits(partition, rules):
    """One term of the Smolyak rule with base 0, equal tokens taken together: nodes (M, G), count (M, G), weights (M,).

    Column 0 is the base; its count is minus the number of tokens elsewhere, to which k is to be added.  The weights are
    those of one arrangement of the levels (multiply by `arrangements`).  `rules` have 0 among their nodes.
    """
    deltas = [{(() if node == (0.0,) else node): weight for node, weight in delta.items()}
              for delta in _differences((0.0,), rules[:max(partition, default=0)])]
    term = _term(deltas, partition)
    nodes, count = np.zeros((len(term), 1 + len(partition))), np.zeros((len(term), 1 + len(partition)))
    for row, key in enumerate(term):
        for column, node in enumerate(sorted(set(key)), 1):
            nodes[row, column], count[row, column] = node, key.count(node)
        count[row, 0] = -len(key)
    used = 1 + max((np.count_nonzero(count[:, column]) > 0) * column for column in range(count.shape[1]))
    return nodes[:, :used], count[:, :used], np.array(list(term.values()))


def parents(partition):
    """The partitions with one part less by one."""
    return {tuple(sorted([*partition[:i], *([part - 1] if part > 1 else []), *partition[i + 1:]], reverse=True))
            for i, part in enumerate(partition)}


def children(partition, k, level):
    """The partitions into at most k parts of at most `level` each with one part more by one."""
    more = {tuple(sorted([*partition[:i], part + 1, *partition[i + 1:]], reverse=True))
            for i, part in enumerate(partition) if part < level}
    return more | ({(*partition, 1)} if len(partition) < k else set())


def orbits(base, rules, level, k, least=0):
    """The Smolyak rule of total level `level` over k tokens, as a tuple of OrbitGroup (q = 0, 1, ..)  [quad.3].

    sum_{least <= l_1 + .. + l_k <= level} Delta_{l_1} x .. x Delta_{l_k}, Delta_l = Q_l - Q_{l-1}, Q_0 the node `base`.
    `least` = `level` gives the term that the last level adds.

    `rules[l - 1]` = (nodes, weights) is Q_l, nodes (n,) or (n, c), weights summing to one.  `base` is a tuple of c
    floats, or () for a base that is none of the nodes (a stand-in for "a token that is not looked at").
    A token at the base is not listed in the orbit: an orbit of size q has k - q tokens there.
    For `least` = 0 the weights of all orbits sum to one.  Raises ValueError if `level` needs more rules than there are.
    """
    if level > len(rules):
        raise ValueError(f"level: got {level}, expected at most {len(rules)}, the number of rules")
    deltas = [{(() if node == base else (node,)): weight for node, weight in delta.items()}
              for delta in _differences(base, rules[:level])]

    total = {}
    for size in range(least, level + 1):
        for partition in partitions(size):
            if len(partition) <= k:
                for key, weight in _term(deltas, partition).items():
                    total[key] = total.get(key, 0.0) + arrangements(partition, k) * weight
    groups = []
    for q in range(max(map(len, total), default=0) + 1):
        keys = sorted(key for key in total if len(key) == q)
        c = len(keys[0][0]) if q and keys else 0
        nodes = np.array(keys, float).reshape(len(keys), q, c)
        groups.append(OrbitGroup(nodes, np.array([total[key] for key in keys])))
    return tuple(groups)
