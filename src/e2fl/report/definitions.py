"""The definition of every measure on the page, one click away; docs/metrics.md has more detail."""

DEFINITIONS: dict[str, tuple[str, str]] = {
    "accuracy": (
        "Accuracy",
        "Of a client: the percentage of its own test examples that are classified correctly by the model it has after "
        "the last round (never the best round). Of a group: the mean over its clients; every client has the same "
        "weight, however many examples it has.",
    ),
    "mean": (
        "Mean",
        "Over clients: the mean of all clients' accuracies, every client with the same weight. Over groups: the mean "
        "of the groups' accuracies, every group with the same weight, however many clients it has.",
    ),
    "worst10": (
        "Worst 10 %",
        "The mean of the lowest tenth of the values, and of at least one: of 100 clients the lowest 10, of 10 groups "
        "the lowest one, which this page calls the worst group. It is found in each run, then averaged over seeds.",
    ),
    "best10": ("Best 10 %", "The mean of the highest tenth of the values, and of at least one."),
    "std": (
        "Standard deviation",
        "The square root of the variance, in percentage points: how far accuracies typically lie from their mean.",
    ),
    "variance": (
        "Variance",
        "The population variance (divided by the number of values) of the accuracies in percent, in percentage points "
        "squared. Over clients it measures equality, over groups equity; 0 means that all accuracies are the same. A "
        "low variance alone is not enough: all may be equally poor.",
    ),
    "loss": (
        "Loss",
        "Cross-entropy: the mean over a client's test examples, then the mean over the clients of the group. Its "
        "standard deviations over clients and over groups are Definitions 1 and 2 of the E2FL paper.",
    ),
    "interval": (
        "Intervals and chance",
        "Every measure is computed in each run and then averaged over seeds. With several seeds, the 95 % interval is "
        "Student's t over seeds; differences between methods are taken seed by seed, between runs with the same data. "
        "With one seed, the interval is over clients, a bootstrap: clients are redrawn with replacement 2,000 times "
        "(for a group, within that group; for a difference of two methods, the same clients for both), the measure is "
        "computed each time, and the interval reaches from the 2.5 % to the 97.5 % quantile, widened for few clients "
        "as Student's t is (expanded percentile interval). For the worst group, the group stays the one that is worst "
        "in the run. Such an interval shows how much depends on which clients take part, not how far another training "
        "run would differ. Fewer than 5 clients are too few to judge and have no interval; nor have clients that all "
        "have the same accuracy, as clients with one model and one test set do. A difference whose interval contains "
        "0 may be chance. Intervals are cut at 0 and at 100 % where no value can lie beyond. Whether the worst group "
        "is lower than the rest is tested with Welch's t-test over clients, or Student's t-test over seeds; the "
        "p-value is multiplied by the number of groups and compared with 0.05.",
    ),
    "bytes": (
        "Bytes",
        "Lengths of the encoded messages of training, in bytes, KiB (2^10 bytes) or MiB (2^20 bytes): what one client "
        "sends (up) and receives (down) in one round on average; the total is over all clients and rounds, up and "
        "down. Models that are sent only to be used are not counted here.",
    ),
    "budget": (
        "Budget",
        "What a method was given for training. Client trainings: how many times a client trained. Client epochs: "
        "passes of a client over its training data, summed over clients. Examples: training examples processed.",
    ),
    "bits": (
        "Bits per edge",
        "The bits that one client sends (up) or receives (down) in one round, divided by the edges (weights) of the "
        "model, on average, headers included. Entropy: what an ideal coder with the same statistical model would need "
        "for the same messages. Above the entropy: by how much the bits sent up exceed it.",
    ),
    "gain": (
        "Gain over training alone",
        "A client's accuracy minus the accuracy that the same client reaches by training on its own data alone, with "
        "the same seed. Worse off means lower by any amount. The interval is over clients (bootstrap); clients that "
        "share a test set or a model are not independent, so the true uncertainty is larger.",
    ),
    "pareto": (
        "Not beaten",
        "No other method is at least as good on mean accuracy, on the worst group and on bytes, and better on one of "
        "them.",
    ),
    "recovery": (
        "Recovery of groups",
        "Where groups are found and not declared. Right: clients in the right group after the best one-to-one matching "
        "of found to true groups, in percent. Purity: clients whose true group is the most frequent one of their found "
        "group, in percent. Adjusted Rand: how far the two groupings agree; 1 is full agreement and 0 is chance. "
        "Changed: clients in another group than at the evaluation before, in percent. Passes: passes over its training "
        "data that a client needs to find its group. Bytes: what was sent for that alone.",
    ),
    "found": (
        "Found groups",
        "No groups were declared, so the measures over groups are over the groups that an algorithm found. Their names "
        "are numbers; they need not be the same groups in another run.",
    ),
    "eod": (
        "Equal opportunity difference",
        "EOD: the true-positive rate of the first group minus that of the second, over all their test examples: the "
        "difference in how many of the truly positive examples are found. 0 is even; undefined where a group has no "
        "positive examples.",
    ),
    "di": (
        "F1 gap",
        "F1 of the positive class in the first group minus that in the second; 0 is even. The E2FL paper calls it DI; "
        "it is not the disparate impact ratio of four-fifths rules.",
    ),
    "spd": (
        "Statistical parity difference",
        "SPD: the share of positive predictions in the first group minus that in the second; 0 is even.",
    ),
    "view": (
        "Views, such as (GM)",
        "The same run measured with other models. E2FL gives each client the model of its group; (GM) is the global "
        "model for all clients.",
    ),
}
