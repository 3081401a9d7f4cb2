"""Compiles all loops of rankings and scores ahead of time, by using each of them once."""

from functools import cache

import numpy as np

from e2fl import kernels
from e2fl.kernels.score_step import Rates, ScoreStep
from e2fl.rankings.ballots import BALLOTS, Reference
from e2fl.rankings.coder import LARGE
from e2fl.rankings.order import rank_of, scores_from
from e2fl.rankings.votes import elect


@cache
def warm() -> None:
    """Compile every loop of rankings and scores, or load it from the cache."""
    rank = np.arange(LARGE, dtype=np.int32)  # some loops are only for large layers
    ranking, reference = {"layer": rank}, Reference({"layer": rank}, {"layer": 2})
    for kind in BALLOTS.values():
        kind().decode(kind().encode(ranking, reference), reference)
    scores = scores_from(elect([ranking])["layer"], rank.astype(np.float32))
    ScoreStep(scores, scores.copy(), 1).advance(scores.copy(), Rates(*np.zeros(3, np.float32)))
    rank_of(scores)
    kernels.footrule(rank, rank)
    kernels.footrules(rank[None], rank[None])
