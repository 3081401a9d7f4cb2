"""What comes out of each table and figure of the paper so far: the first lines of docs/results.md."""

from collections.abc import Sequence

from e2fl.report.intervals import over_seeds
from e2fl.reproduce.adult_tables import MODELS, OWN, WOMEN, agreement
from e2fl.reproduce.claims import UNTESTED, Finding
from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.selection import NARROW, PAPERS, SAMPLES, fewer_images, select
from e2fl.reproduce.studies import LAYERS, RULES, paper
from e2fl.reproduce.tables import Reader, Repeats, level, repeats_of, seeds_text

NOTHING = "not run"
FEMNIST_E2FL = ("e2fl", "one_shot", "rank_clustering", "e2fl_present_only", "steady_rank_clustering")


def in_short(entries: Sequence[Entry], found: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return each table or figure of the paper, and a sentence or two on what our runs show."""
    rows = {
        "Table 1, FairMNISTRotate": _rotated(entries, found),
        "Table 2, FEMNIST (300 of 3,400 writers)": _femnist(entries, found),
        "Table 4, Adult": _adult(entries),
        "Table 5, layers": _layers(select(entries, "table5")),
        "Table 6, number of clusters": _clusters(entries),
        "Figure 3, loss of each group": _course(entries, "table1", ("fedavg", "e2fl"), paper()["rounds"]),
        "Group inference": _course(entries, "inference", RULES, paper()["rounds_inference"]),
    }
    return [(name, text or NOTHING) for name, text in rows.items()]


def _rotated(entries: Sequence[Entry], found: Sequence[Finding]) -> str:
    """Return the change of the variance over groups, and the worst group at the last round that both methods have."""
    text = _claimed(
        found,
        "FairMNISTRotate: E2FL lowers the variance over groups",
        "E2FL (groups known) against FedAvg, variance over groups",
    )
    own = {entry.method: entry for entry in select(entries, "table1") if entry.seed == 0}
    if not text or not own.keys() >= {"e2fl", "fedavg"}:
        return text
    last = [line["round"] for line in own["e2fl"].history if own["fedavg"].at(line["round"])][-1:]
    for number in last:
        pairs = []
        for method, name in (("e2fl", "E2FL"), ("fedavg", "FedAvg")):
            worst = _mean(Repeats((own[method],), number), level("group", "worst10"))
            pairs.append(f"{name} {worst:.1f} % (paper: {paper()['table1'][method]['group']['worst10']:.1f})")
        text += f" Worst group, {PAPERS} images, round {number}, seed 0: {', '.join(pairs)}."
    return text


def _claimed(found: Sequence[Finding], claim: str, words: str) -> str:
    """Return our figures for a claim, in every setting that was run, and the paper's."""
    tested = [finding for finding in found if finding.claim == claim and finding.verdict != UNTESTED]
    figures = "; ".join(f"{finding.figure} ({finding.setting})" for finding in tested)
    return f"{words}: {figures}. Paper: {tested[0].paper}." if tested else ""


def _femnist(entries: Sequence[Entry], found: Sequence[Finding]) -> str:
    text = _claimed(
        found, "FEMNIST: E2FL (lowest loss) raises the accuracy", "E2FL (lowest loss) against FedAvg, accuracy"
    )
    ahead = [_fedavg_leads(select(entries, "femnist", changes)) for changes in ({}, NARROW)]
    return f"{text} FedAvg is ahead of every variant of E2FL in both." if text and all(ahead) else text


def _fedavg_leads(entries: Sequence[Entry]) -> bool:
    """Return whether FedAvg has a better mean over clients than all variants of E2FL, as far as each was run."""
    means = {}
    for method in ("fedavg", *FEMNIST_E2FL):
        repeats = repeats_of(entry for entry in entries if entry.method == method)
        if repeats:
            means[method] = _mean(repeats[0], level("user", "mean"))
    return len(means) > 1 and "fedavg" in means and max(means, key=lambda method: means[method]) == "fedavg"


def _adult(entries: Sequence[Entry]) -> str:
    counts = []
    inside = agreement(entries)
    for label, chosen in (
        ("FedAvg and FairFed", [("fedavg", OWN), ("fairfed", OWN)]),
        (f"E2FL, {MODELS[OWN]}", [("e2fl", OWN)]),
        (f"E2FL, {MODELS[WOMEN]} for all rows", [("e2fl", WOMEN)]),
    ):
        hits = [hit for (method, view, _, _), hit in inside.items() if (method, view) in chosen]
        if hits:
            counts.append(f"{sum(hits)} of {len(hits)} ({label})")
    return f"The paper's numbers inside our 95 % intervals: {', '.join(counts)}." if counts else ""


def _layers(entries: Sequence[Entry]) -> str:
    matched = level("inference", "matched")
    parts = []
    for suffix, words in (("_random", "with random starts, as in the paper"), ("", "with the tree, our default")):
        away = []
        for layer in LAYERS:
            repeats = repeats_of(entry for entry in entries if entry.method == f"{layer}{suffix}")
            if repeats:
                away.append(_mean(repeats[0], matched) - paper()["table5"][layer])
        if away:
            parts.append(f"{min(away):+.1f} to {max(away):+.1f} points {words} ({len(away)} of {len(LAYERS)} layers)")
    return f"Clients in the right group, relative to the paper: {'; '.join(parts)}." if parts else ""


def _clusters(entries: Sequence[Entry]) -> str:
    for changes, words in (({}, "the paper's network"), (NARROW, "a narrow network")):
        own = select(entries, "table6", changes)
        means = {}
        for groups in (2, 3, 4, 5):
            repeats = repeats_of(entry for entry in own if entry.method == f"q{groups}")
            if repeats:
                means[groups] = (repeats[0], _mean(repeats[0], level("user", "mean")))
        if means:
            last = next(iter(means.values()))[0]
            shown = ", ".join(f"{mean:.1f} (Q = {groups})" for groups, (_, mean) in means.items())
            where = f"{words}, {seeds_text(len(last.entries))}, {last.round} of {paper()['rounds']} rounds"
            return f"Percent over clients: {shown}; {where}."
    return ""


def _course(entries: Sequence[Entry], experiment: str, methods: Sequence[str], of: int) -> str:
    """Return how far the runs of a figure have got, for each number of images."""
    parts = []
    for samples in SAMPLES:
        own = [
            entry
            for entry in select(entries, experiment, fewer_images(samples))
            if entry.seed == 0 and entry.method in methods
        ]
        if len(own) == len(methods):
            name = "as in the paper" if samples == PAPERS else f"{samples} images per client"
            parts.append(f"round {min(entry.rounds for entry in own)} of {of} ({name})")
    return f"To {'; to '.join(parts)}." if parts else ""


def _mean(repeats: Repeats, read: Reader) -> float:
    return over_seeds(list(repeats.values(read).values())).mean
