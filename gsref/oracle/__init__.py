"""The oracle: is another implementation of the model right, and if not, what is wrong with it?"""

from gsref.oracle.expansion import check_expansion
from gsref.oracle.system import TRANSFORMER, System
from gsref.oracle.training import check_trajectory, check_unbiased
from gsref.oracle.verdict import Report, assert_matches, check

__all__ = ["TRANSFORMER", "Report", "System", "assert_matches", "check", "check_expansion", "check_trajectory",
           "check_unbiased"]
