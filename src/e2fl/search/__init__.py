"""Search for settings on validation data: a grid (`e2fl sweep`) or Optuna's TPE (`e2fl tune`)."""
