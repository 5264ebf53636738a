"""Which learning rate?  A number, or a rule in the number of groups D."""

import re
from dataclasses import dataclass

RULE = re.compile(r"\s*([0-9.eE+-]+?)\s*(?:([*/])\s*D\s*(?:(?:\^|\*\*)\s*([0-9.]+))?)?\s*")
ALLOWED = "a number > 0, a rule such as 0.5/D, 2*D or 8/D^3, or stable"


@dataclass(frozen=True)
class LearningRate:
    """eta(D) = factor D^power; `text` is what the user wrote.  `stable` has no power law of its own."""

    text: str
    factor: float = 0.0
    power: float = 0.0

    @classmethod
    def parse(cls, text):
        """ValueError, with what is allowed, for anything else than ALLOWED."""
        if text.strip() == "stable":
            return cls("stable")
        match = RULE.fullmatch(text)
        try:
            factor = float(match.group(1))
            power = float(match.group(3) or 1) if match.group(2) else 0.0
        except (AttributeError, ValueError):
            raise ValueError(f"got {text!r}, expected {ALLOWED}") from None
        if not 0 < factor < float("inf"):
            raise ValueError(f"got {text!r}, expected {ALLOWED}")
        return cls(text.strip(), factor, -power if match.group(2) == "/" else power)

    @property
    def stable(self):
        return self.text == "stable"

    def at(self, problem):
        """eta for this problem."""
        return stable_rate(problem) if self.stable else self.factor * float(problem.D) ** self.power


def stable_rate(problem):
    """Half of the largest learning rate at which no step can multiply a perturbation of v2 by less than -1.

    The multiplier of v2 is 1 - eta kappa E[s'(f) T-weights] with E[s'] <= 1/4 and weights <= D^2, so that
    eta < 16/(D^2 (D + 1)) suffices at every stage; half of it leaves the multiplier at or above 0.
    """
    return 8 / (problem.D**2 * (problem.D + 1))
