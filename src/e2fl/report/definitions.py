"""What every measure on the page is, one click away; docs/metrics.md says the same at more length."""

DEFINITIONS: dict[str, tuple[str, str]] = {
    "accuracy": (
        "Accuracy",
        "Of a client: the share of its own test examples that are right, in percent, with the model it is given after "
        "the last round (never the best round). Of a group: the mean over its clients, every client weighing the same "
        "however many examples it has.",
    ),
    "mean": (
        "Mean",
        "Over clients: the mean of all clients' accuracies, each client weighing the same. Over groups: the mean of "
        "the groups' accuracies, each group weighing the same however many clients it has.",
    ),
    "worst10": (
        "Worst 10 %",
        "The mean of the lowest tenth of the values, and of at least one: of 100 clients the lowest 10, of 10 groups "
        "the lowest one, which is then the worst group.",
    ),
    "best10": ("Best 10 %", "The mean of the highest tenth of the values, and of at least one."),
    "variance": (
        "Variance",
        "The population variance (divided by the number of values) of the accuracies in percent, so its unit is "
        "percent points squared. Over clients it is a measure of equality, over groups of equity; 0 means that all "
        "are served alike. A low variance alone is no merit: everybody may be served badly.",
    ),
    "loss": (
        "Loss",
        "Cross-entropy: the mean over a client's test examples, then the mean over the clients of the group.",
    ),
    "interval": (
        "± and noise",
        "Every measure is computed in each run and then averaged over seeds. ± is half the width of the 95 % interval "
        "of that mean (Student's t). Differences are taken seed by seed, between runs with the same data and the same "
        "draws of clients; a difference whose interval holds 0 is within noise. With one seed, noise cannot be judged.",
    ),
    "bytes": (
        "Bytes",
        "Lengths of the messages as really encoded, training only, in MiB (2^20 bytes): what one drawn client sends "
        "(up) and is sent (down) in one round on average; the total is over all clients and rounds, up and down. "
        "Models handed out for use are not counted here.",
    ),
    "gain": (
        "Gain over training alone",
        "A client's accuracy minus what the same client reaches by training alone on its own data, same seed. Worse "
        "off means lower by any amount. The interval is of the mean over clients; clients who share a test set or a "
        "model are not independent, so it is a lower bound of the noise.",
    ),
    "pareto": (
        "Not beaten",
        "No other contender is at least as good in mean accuracy, in the worst group and in bytes, and better in one "
        "of them.",
    ),
    "inference": (
        "Inference of groups",
        "Where groups are not declared but found. Right: clients in the right group after the best one-to-one matching "
        "of found to true groups, in percent. Purity: clients that are of the true group most of their found group is "
        "of, in percent. Adjusted Rand: how far the two groupings agree, 1 is fully and 0 is chance. Changed: clients "
        "in another group than at the evaluation before, in percent. Passes: passes over its training data that a "
        "client spends to find its group. Bytes: what was sent for that alone.",
    ),
    "eod": (
        "EOD, equal opportunity difference",
        "True-positive rate of the first group minus that of the second, over all their test examples. 0 is even; "
        "negative is a disadvantage of the first; undefined where a group has no positives.",
    ),
    "di": ("DI, difference of F1", "F1 of the positive class in the first group minus that in the second; 0 is even."),
    "spd": (
        "SPD, statistical parity difference",
        "Share of positive predictions in the first group minus that in the second; 0 is even.",
    ),
    "view": (
        "Views, such as (GM)",
        "The same run seen through other models. E2FL serves each client its group's model; (GM) is the global model "
        "for everybody.",
    ),
}
