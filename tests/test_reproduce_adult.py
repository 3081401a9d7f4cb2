"""Tables of our studies of Adult, from made-up runs."""

from e2fl.config.experiment import load, with_seed
from e2fl.reproduce import adult_tables
from e2fl.reproduce.command import shown
from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.studies import STUDIES, wanted

SMALL = "model.hidden=[128,128]"


def run(method, *changes, seed=0, lines=((5, 85.0, -0.05),), views=()):
    """A run with round, accuracy and EOD in each line; `views` have an accuracy of 80."""
    config = with_seed(load("adult", [SMALL, *changes], algorithm=method), seed).to_dict()

    def figures(accuracy, eod):
        return {"user": {"mean": accuracy}, "protected": {"eod": eod, "di": eod / 2}}

    history = [
        {"round": number, **figures(accuracy, eod), "views": {view: figures(80.0, 0.0) for view in views}}
        for number, accuracy, eod in lines
    ]
    return Entry(config, tuple(history), {"rounds": history[-1]["round"]})


def test_each_reading_has_a_row_for_every_model_it_has():
    runs = [
        run("fedavg"),
        run("e2fl", views=("global", "as_group0", "as_group1")),
        run("one_ranking", views=("global",)),
    ]
    table = adult_tables.readings(runs, 5000)
    assert table.titles == ("method", "seeds", "round", "accuracy", "EOD", "DI")
    assert [row[0] for row in table.rows] == [
        "FedAvg",
        "E2FL, a ballot for each sex: each row with its own model",
        "E2FL, a ballot for each sex: the global model",
        "E2FL, a ballot for each sex: the women's model",
        "E2FL, a ballot for each sex: the men's model",
        "E2FL, one ballot for the larger sex: each row with its own model",
        "E2FL, one ballot for the larger sex: the global model",
    ]
    assert table.rows[0][1:] == ("1", "5", "85.00", "-0.0500", "-0.0250")
    assert table.rows[3][3] == "80.00"


def test_readings_are_told_apart_by_alpha_and_by_network():
    runs = [run("fedavg"), run("fedavg", "data.alpha=1", seed=1), run("fedavg", "model.hidden=[64]", seed=2)]
    for alpha in (5000, 1, 1.0):
        assert [row[1] for row in adult_tables.readings(runs, alpha).rows] == ["1"]
    assert adult_tables.readings(runs[2:], 5000).empty
    assert "alpha 1\n" in shown("readings", runs[:2])
    assert shown("readings", runs[:2]).count("FedAvg") == 2


def test_rates_are_compared_on_validation_rows_only():
    lines = ((1, 84.0, -0.1), (10, 85.0, 0.01))
    share, full = "data.pooled_validation_share=0.2", "model.hidden=[1024,1024]"
    runs = [
        run("fedavg", full, share, "learner.learning_rate=0.05", lines=lines),
        run("fedavg", full, share, lines=lines),
        run("fedavg", full, lines=lines),
        run("fairfed", full, share, lines=lines),
    ]
    table = adult_tables.rates(runs)
    assert [row[:3] for row in table.rows] == [("0.01", "1", "84.00"), ("0.05", "1", "84.00")]
    assert table.rows[0][5] == "85.00"
    assert table.rows[0][-1] == "0.010"
    assert table.rows[0][3] == "–"  # round 4 was not evaluated
    assert adult_tables.rates([]).empty


def test_every_run_of_the_studies_is_in_their_tables():
    readings = [Entry(w.experiment.to_dict(), run("e2fl").history) for w in wanted(STUDIES["readings"])]
    counted = [row[1] for alpha in (5000, 1) for row in adult_tables.readings(readings, alpha).rows]
    assert counted == ["5"] * 11
    rates = [Entry(w.experiment.to_dict(), run("e2fl").history) for w in wanted(STUDIES["rates"])]
    assert len(adult_tables.rates(rates).rows) == 3


FULL = "model.hidden=[1024,1024]"


def test_the_paper_is_compared_in_words_that_follow_the_runs():
    views = ("global", "as_group0", "as_group1")  # all with an EOD of 0
    dense = [run("fedavg", FULL, seed=seed, lines=((20, 85.56 + seed, -0.2 + 0.001 * seed),)) for seed in (0, 1)]
    own = [run("e2fl", FULL, seed=seed, lines=((20, 85.0, -0.0174),), views=views) for seed in (0, 1)]
    agreement, ours, *others, nearest, women = adult_tables.against_the_paper([*dense, *own])
    assert agreement == (
        "**FedAvg.** The paper's numbers inside our 95 % intervals: accuracy (alpha 5000); "
        "outside: EOD (alpha 5000), DI (alpha 5000)."
    )
    assert ours.startswith("**E2FL, each row with its own model.**")
    assert ours.endswith("outside: accuracy (alpha 5000), DI (alpha 5000).")  # EOD is the paper's
    assert len(others) == 3  # the other readings
    assert nearest == "Of E2FL's four readings, nearest to the paper's EOD: each row with its own model in 2 of 2 runs."
    assert women == "With the women's model for all rows, EOD is 0 % of FedAvg's and DI 0 % (alpha 5000)."
    assert adult_tables.against_the_paper([]) == []
    assert adult_tables.against_the_paper(dense[:1]) == []
    begun = [run(method, FULL, lines=((1, 76.0, 0.0),), views=views) for method in ("fedavg", "e2fl")]
    assert adult_tables.against_the_paper(begun) == []
    flat = [run(method, FULL, lines=((20, 76.0, 0.0),), views=views) for method in ("fedavg", "e2fl")]
    assert [text[:9] for text in adult_tables.against_the_paper(flat)] == ["Of E2FL's"]


def test_a_model_that_nobody_elected_is_not_a_row():
    elected = run("one_ranking", views=("global", "as_group0", "as_group1"))
    lines = tuple(line | {"notes": {"groups_seen": [1]}} for line in elected.history)
    names = [row[0] for row in adult_tables.readings([Entry(elected.config, lines)], 5000).rows]
    assert [name.split(": ")[1] for name in names] == [
        "each row with its own model",
        "the global model",
        "the men's model",
    ]
