"""The commands of `e2fl`, one function each; commands.toml declares them and their arguments.

Commands import what they need when they run: `e2fl --help` must not wait for torch.
"""
