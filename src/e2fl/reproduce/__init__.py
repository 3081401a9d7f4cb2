"""The paper's tables and figures beside ours: a ledger of runs, the pages made from it, and runs that fill it."""
