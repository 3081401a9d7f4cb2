"""The commands of `e2fl`, one module for each family: its arguments, and the calls they are turned into.

Commands import what they need when they run: `e2fl --help` must not wait for torch.
"""
