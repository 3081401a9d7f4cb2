"""The commands of `e2fl`; commands.toml declares them. They import torch only when they need it."""
