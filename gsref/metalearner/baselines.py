"""What do learners do that are told more, or less, than the trained model?

- full MLE `sign(muhat . x)`: knows the law but not the subspace (p = q = 1 in the language of `population`);
- projected MLE `sign(Pi muhat . x)`: knows the subspace (p = 1, q = 0), and is the optimal rule then;
- linear SVM, hard margin, with or without an intercept: knows the context alone (see `svm`).

Source: derivations/08_metalearner.md.
"""

from gsref.arguments import instance
from gsref.metalearner.population import Order
from gsref.metalearner.problem import MetaProblem

FULL_MLE = Order(1.0, 1.0)
PROJECTED_MLE = Order(1.0, 0.0)


def optimal_rule(problem):
    """The Bayes rule of a learner that knows the law and the subspace, as an `Order`  [meta.10].

    Without flipped labels the posterior odds of y are I(R |M Pi muhat + Pi x|) / I(R |M Pi muhat - Pi x|) with an
    increasing function I, so the rule is the projected MLE; a learner that does not know the subspace, if that is
    uniformly random, has the same odds without Pi: the full MLE is optimal among all that see the context alone.
    Raises ValueError for label_noise > 0: the odds then are no function of the context mean (see `bayes`).
    """
    if instance("problem", problem, MetaProblem).label_noise > 0.0:
        raise ValueError(f"label_noise: got {problem.label_noise:g}, expected 0: with flipped labels the optimal rule "
                         "is no function of the context mean")
    return PROJECTED_MLE
