"""What is the data law?

Group-sparse classification: D groups ("tokens") of d features,

    x_j ~ N(0, sigma^2 I_d) independent,    y = sign(<x_r, v*>),    |v*| = 1,

where r = `relevant` is the one group that the label depends on.  Source: derivations/01_setting.md.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gsref.arguments import finite, instance, integer, real, real_array


def positions(D):
    """Positional encodings P, shape (D, D), row j is p_j; P = P^T and P P^T = kappa I, kappa = (D+1)/2  [setting.2].

    Raises TypeError or ValueError if D is not a positive integer.
    """
    D = integer("D", D)
    k = np.arange(1, D + 1)
    # sin(pi k/(D+1)) has period 2(D+1) in k: reducing i*j first keeps the argument small, so P is exact to rounding
    return np.sin(np.pi / (D + 1) * (np.outer(k, k) % (2 * (D + 1))))


@dataclass(frozen=True, eq=False)
class Problem:
    """The data law, validated once and never changed.

    Parameters: `d` features a group, `D` groups, `sigma` > 0 the standard deviation of a feature,
    `relevant` the 0-based index r of the group that decides the label,
    `direction` v*, shape (d,), unit norm to 1e-8 (it is normalised; default: the first coordinate axis).
    Raises TypeError or ValueError, naming the argument.
    """

    d: int
    D: int
    sigma: float = 1.0
    relevant: int = 0
    direction: np.ndarray = None

    def __post_init__(self):
        d, D = integer("d", self.d), integer("D", self.D)
        v_star = np.eye(1, d)[0]
        if self.direction is not None:
            v_star = real_array("direction", self.direction, (d,))
            norm = np.linalg.norm(v_star)
            if abs(norm - 1.0) > 1e-8:
                raise ValueError(f"direction: got norm {norm:.9g}, expected a unit vector")
            v_star = v_star / norm
        v_star.flags.writeable = False
        for name, value in (("d", d), ("D", D), ("sigma", real("sigma", self.sigma, 0.0, open_least=True)),
                            ("relevant", integer("relevant", self.relevant, 0, D - 1)),
                            ("direction", v_star)):
            object.__setattr__(self, name, value)

    @cached_property
    def positions(self):
        """P, shape (D, D), read-only; made when first asked for, since expectations need it at no D."""
        P = positions(self.D)
        P.flags.writeable = False
        return P

    @property
    def kappa(self):
        """|p_j|^2 = (D + 1)/2."""
        return (self.D + 1) / 2

    def sample(self, n, rng):
        """n independent samples: X (n, D, d), y (n,) of -1.0 and +1.0  [setting.1].

        `rng` is a numpy.random.Generator.  Raises TypeError or ValueError for a bad n or rng, OverflowError if sigma is
        so large that X exceeds float64.
        """
        n, rng = integer("n", n), instance("rng", rng, np.random.Generator)
        x = rng.standard_normal((n, self.D, self.d))
        y = np.where(x[:, self.relevant] @ self.direction >= 0, 1.0, -1.0)     # before sigma: no under- or overflow
        with np.errstate(over="ignore"):
            return finite("X", self.sigma * x), y
