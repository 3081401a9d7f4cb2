"""Local training with compiled loops instead of autograd."""
