"""Fairness audits of tables of scores or predictions: `e2fl audit` and `e2fl.audit`. No torch, no Numba.

The steps: files (bytes into columns of text) -> columns (which column is what) -> reader (a `Table` of counted cells)
-> rates and uncertainty (values with intervals and tests) -> findings (sentences) -> page, result (HTML, JSON, frames).
"""
