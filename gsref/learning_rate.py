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
        """eta for this problem.  ValueError for `stable`, which takes the path: `stability.stable_eta`."""
        if self.stable:
            raise ValueError("stable: has no law in D, expected a call of stability.stable_eta")
        return self.factor * float(problem.D) ** self.power
