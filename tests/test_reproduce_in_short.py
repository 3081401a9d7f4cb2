"""The summary at the top of docs/results.md follows the runs."""

from e2fl.config.experiment import load, with_seed
from e2fl.reproduce.claims import findings
from e2fl.reproduce.in_short import NOTHING, in_short
from e2fl.reproduce.ledger import Entry


def run(experiment, method, *, number=100, mean=80.0, worst=70.0, variance=9.0, seed=0, changes=(), **more):
    spread = {"mean": mean, "worst10": worst, "best10": mean, "variance": variance}
    line = {"round": number, "user": spread, "group": spread, "groups": {}, **more}
    return Entry(with_seed(load(experiment, list(changes), algorithm=method), seed).to_dict(), (line,))


def told(runs, start):
    return next(text for name, text in in_short(runs, findings(runs)) if name.startswith(start))


def test_nothing_is_claimed_without_runs():
    assert {text for _, text in in_short([], findings([]))} == {NOTHING}


def test_table_1_has_the_change_of_the_variance_and_the_worst_groups():
    runs = [run("table1", "e2fl", variance=5.0, worst=88.0), run("table1", "fedavg", variance=50.0, worst=51.0)]
    text = told(runs, "Table 1")
    assert "variance over groups: -90 % after 100 of 3000 rounds, 1 seed (233 images per client). Paper: -95 %." in text
    assert "Worst group, 233 images, round 100, seed 0: E2FL 88.0 % (paper: 93.9), FedAvg 51.0 % (paper: 81.9)." in text


def test_fedavg_leads_on_femnist_only_if_no_e2fl_is_ahead_in_both_networks():
    def both(**means):
        return [
            run("femnist", method, mean=mean, changes=changes)
            for method, mean in means.items()
            for changes in ((), ("model.name=lenet_small",))
        ]

    leads = "FedAvg is ahead of every variant of E2FL in both."
    assert leads in told(both(fedavg=85.0, e2fl=80.0, rank_clustering=81.0), "Table 2")
    assert leads not in told(both(fedavg=85.0, e2fl=80.0, rank_clustering=86.0), "Table 2")
    assert leads not in told([run("femnist", "fedavg", mean=85.0), run("femnist", "e2fl", mean=80.0)], "Table 2")


def test_layers_are_compared_with_the_paper_by_start():
    runs = [
        run("table5", "conv1_random", inference={"matched": 71.78}),
        run("table5", "conv2_random", inference={"matched": 84.94}),
        run("table5", "fc1", inference={"matched": 100.0}),
    ]
    text = told(runs, "Table 5")
    assert "-20.0 to -10.0 points with random starts, as in the paper (2 of 5 layers)" in text
    assert "+6.2 to +6.2 points with the tree, our default (1 of 5 layers)" in text


def test_the_narrow_network_stands_in_for_table_6_until_the_papers_was_run():
    narrow = [run("table6", "q2", mean=70.0, changes=["model.name=lenet_small"])]
    assert told(narrow, "Table 6") == (
        "Percent over clients: 70.0 (Q = 2); a narrow network, 1 seed, 100 of 3000 rounds."
    )
    assert "88.0 (Q = 2); the paper's network" in told([*narrow, run("table6", "q2", mean=88.0)], "Table 6")


def test_a_figure_goes_as_far_as_all_its_methods():
    runs = [run("table1", "e2fl", number=200), run("table1", "fedavg", number=100)]
    assert told(runs, "Figure 3") == "To round 100 of 3000 (as in the paper)."
    assert told(runs[:1], "Figure 3") == NOTHING
