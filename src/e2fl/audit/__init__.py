"""Audits of tables of scores or predictions."""
