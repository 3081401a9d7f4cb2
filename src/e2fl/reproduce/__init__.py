"""Comparison of the paper's tables and figures with ours: a ledger of runs, pages made from it, runs that fill it."""
