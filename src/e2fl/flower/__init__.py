"""Runs the same algorithms on many machines, with Flower; see docs/flower.md.

Only this package imports Flower, which is an extra: pip install 'e2fl[flower]'. `server` and `client` make the two
apps of a Flower run; `strategy` and `fairness` are for existing Flower pipelines.
"""
