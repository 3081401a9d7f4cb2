"""The fairness report: runs on disk as one self-contained HTML page.

    from e2fl.report.from_runs import read_runs, study_of
    from e2fl.report.page import write_report

    write_report(study_of(*read_runs([Path("runs/demo-compare-1")])), Path("report.html"))

How it works: frame (a column per measure) -> study -> verdict and sections (a function for each
question: text, table, plot) -> page, files. A page is drawn from files alone: torch is not loaded.
"""
