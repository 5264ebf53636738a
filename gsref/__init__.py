"""gsref: a closed-form reference for a softmax-attention transformer on group-sparse classification."""

from gsref.batched import loss_and_gradient, stream_loss_and_gradient
from gsref.descent import Trajectory, descend
from gsref.model import forward
from gsref.order import OrderParameters
from gsref.population import population
from gsref.problem import Problem

__version__ = "0.1.0"
__all__ = ["OrderParameters", "Problem", "Trajectory", "descend", "forward", "loss_and_gradient", "population",
           "stream_loss_and_gradient"]
