"""The same algorithms on many machines, with Flower; docs/flower.md shows how.

This package alone imports Flower, which is an extra: pip install 'e2fl[flower]'. `server` and `client` make the two
apps of a Flower run; `strategy` and `fairness` are for pipelines that are there already.
"""
