"""The reproduction of the paper: its tables, figures and claims, from a ledger of runs."""
