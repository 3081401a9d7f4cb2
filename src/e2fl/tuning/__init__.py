"""Tuning: settings drawn by Optuna, the same budget for every algorithm, chosen on validation data and tested once."""
