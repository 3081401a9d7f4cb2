"""Causes that may explain a difference from the paper: E2FL and FedAvg with one assumption of ours changed."""

from collections.abc import Sequence

from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.our_tables import GLOBAL, GROUPS, Cells, Variation, rows_by, table_of, variations
from e2fl.reproduce.selection import fewer_images
from e2fl.reproduce.tables import Column, Repeats, Table, level

AS_SHIPPED = "as shipped"
SIGNED = 0.05  # half the rate
IMAGES, ROUND = 60, 100  # the cheap variant of Table 1: a run takes minutes, not hours
GLOBAL_VARIANCE = Column("GM: variance", (), level("group", "variance", "global"))
NAMES = {"e2fl": "E2FL", "e2fl_present_only": "E2FL", "fedavg": "FedAvg"}
ASSUMPTIONS = {
    "algorithm.absent": "absent groups do not vote",
    "data.angle_step": "{} degrees between groups instead of 36",
    "data.group_sizes": "ten groups of 100 clients",
    "learner.round_decay": "rate times {} after every round",
    "learner.local_cosine": "a cosine inside a round",
    "learner.learning_rate": "a rate of {}",
}


def causes(entries: Sequence[Entry]) -> Table:
    """Return the table of FairMNISTRotate with one assumption changed at a time: 60 images per client, 100 rounds."""

    def cells(run: Variation) -> Cells | None:
        method, fixed = run.entry.method, fewer_images(IMAGES)
        if method not in NAMES or any(run.changes.get(key) != value for key, value in fixed.items()):
            return None
        changes = {key: value for key, value in run.changes.items() if key not in fixed}
        if method == "e2fl_present_only":
            changes["algorithm.absent"] = "present_only"
        if NAMES[method] != "E2FL" and "learner.learning_rate" in changes:
            return None  # FedAvg has no scores
        sizes = changes.get("data.group_sizes")
        if not changes.keys() <= ASSUMPTIONS.keys() or (sizes is not None and set(sizes) != {100}):
            return None
        if changes == {"learner.learning_rate": SIGNED}:
            return f"a rate of {SIGNED}, the same as signed initial scores", NAMES[method]
        texts = [text.format(changes[key]) for key, text in ASSUMPTIONS.items() if key in changes]
        return ", ".join(texts) or AS_SHIPPED, NAMES[method]

    rows = rows_by(variations(entries, "table1"), cells, ROUND)
    # Compared on the seeds that all rows have, or a difference between seeds would look like an effect.
    by_row = [{entry.seed for entry in repeats.entries} for repeats in rows.values()]
    shared = set.intersection(*by_row) if by_row else set()
    rows = {label: _only(repeats, shared) for label, repeats in rows.items()}
    ordered = sorted(rows.items(), key=lambda row: (row[0][0] != AS_SHIPPED, row[0]))
    return table_of(("assumption", ""), dict(ordered), [*GROUPS, GLOBAL[0], GLOBAL_VARIANCE])


def _only(repeats: Repeats, seeds: set[int]) -> Repeats:
    kept = tuple(entry for entry in repeats.entries if entry.seed in seeds)
    return Repeats(kept or repeats.entries, repeats.round)
