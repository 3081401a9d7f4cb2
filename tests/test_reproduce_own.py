"""Tables of our own studies, from made-up runs."""

import pytest

from e2fl.config.experiment import load, with_seed
from e2fl.reproduce import ballot_tables, figures, our_tables
from e2fl.reproduce.causes import causes
from e2fl.reproduce.leaderboard import leaderboard
from e2fl.reproduce.ledger import Entry
from e2fl.reproduce.pages import pages
from e2fl.reproduce.studies import STUDIES, wanted

SIXTEEN = ("algorithm.ballot={name='buckets',buckets=16}", "algorithm.downlink={name='buckets',buckets=32}")


def run(
    method, *changes, seed=0, experiment="demo", rounds=60, mean=80.0, worst=70.0, variance=9.0, clients=None, **more
):
    config = with_seed(load(experiment, changes, algorithm=method), seed).to_dict()
    group = {"mean": mean, "worst10": worst, "best10": mean + 5, "variance": variance}
    user = {"mean": mean if clients is None else clients, "worst10": worst, "best10": mean + 5, "variance": 1.0}
    total = {"up_total": 2**20, "down_total": 3 * 2**20}
    line = {"round": rounds, "user": user, "group": group, "bytes": total, "asked": 10}
    return Entry(config, (line | {"views": {"global": {"user": user, "group": group}}},), {"rounds": rounds, **more})


def labels(table, cells=1):
    return [row[:cells] for row in table.rows]


def test_the_ablation_has_a_row_for_each_combination_and_knows_both_presets():
    runs = [
        run("e2fl"),
        run("e2fl_steady"),
        run("e2fl_steady", seed=1),
        run("e2fl", "participation.name=by_group", "algorithm.incumbents=5", "learner.learning_rate=0.05"),
        run("e2fl", "participation.name=uniform", "algorithm.incumbents=1"),
        run("e2fl", "model.keep=0.3"),
        run("e2fl", "participation.name=everyone"),
        run("fedavg", "participation.name=by_group"),
    ]
    table = our_tables.ablation(runs)
    assert [row[:5] for row in table.rows] == [
        ("by_group", "0", "5", "0.1", "2"),
        ("by_group", "5", "0", "0.05", "1"),
        ("uniform", "0", "0", "0.1", "1"),
        ("uniform", "1", "0", "0.1", "1"),
    ]


def test_every_point_of_the_study_has_a_row_of_its_own_in_the_ablation():
    runs = [Entry(w.experiment.to_dict(), run("e2fl").history) for w in wanted(STUDIES["steady"], seeds=[0])]
    assert len(our_tables.ablation(runs).rows) == 24 + 7


def test_validation_figures_are_those_of_runs_with_validation_rows():
    measured = {"validation": {"group": {"mean": 60.0, "worst10": 50.0, "variance": 4.0}, "user": {"mean": 61.0}}}
    with_rows = run("e2fl_steady", "data.validation_share=0.2")
    with_rows = Entry(with_rows.config, (with_rows.history[0] | measured,))
    table = our_tables.validation([run("e2fl"), with_rows])
    assert table.rows == (("by_group", "0", "5", "0.1", "1", "60.00", "50.00", "4.00", "61.00"),)
    assert our_tables.ablation([with_rows]).empty


def test_the_best_point_on_validation_rows_is_named_beside_the_recommended_one():
    def validated(*changes, mean, seed=0):
        made = run("e2fl_steady", "data.validation_share=0.2", *changes, seed=seed)
        return Entry(made.config, (made.history[0] | {"validation": {"group": {"mean": mean}}},))

    steady, ten = validated(mean=90.0), validated("algorithm.smoothing=10", mean=91.0)
    assert our_tables.best_validated([ten]) == ""
    assert our_tables.best_validated([steady]).startswith("`e2fl_steady` has the best mean")
    assert our_tables.best_validated([steady, ten, validated("algorithm.smoothing=10", mean=91.0, seed=1)]) == (
        "The best mean over groups on validation rows has participation by_group, incumbents 0, smoothing 10, rate 0.1 "
        "(91.0 %, 2 seeds); `e2fl_steady` has 90.0 %, 1 seed."
    )


def test_criteria_are_judged_seed_by_seed_where_all_four_methods_were_run():
    good = [
        run("local", worst=75.0),
        run("fedavg", mean=70.0, worst=35.0, variance=500.0, clients=91.0),
        run("e2fl"),
        run("e2fl_steady", mean=89.0, worst=84.0, clients=90.5),
    ]
    bad = [
        run("local", worst=85.0, seed=1),
        run("fedavg", mean=95.0, worst=35.0, variance=20.0, clients=96.0, seed=1),
        run("e2fl", seed=1),
        run("e2fl_steady", mean=89.0, worst=84.0, clients=90.5, seed=1),
    ]
    table = our_tables.criteria([*good, *bad, run("e2fl", seed=2)])
    assert table.titles == ("", "seed 0", "seed 1")
    assert {row[1] for row in table.rows} == {"yes"}
    assert {row[2] for row in table.rows} == {"**no**"}


def test_the_words_say_where_a_baseline_with_the_same_turns_is_better():
    known = ("participation.name=by_group", "algorithm.oracle_groups=true")
    runs = [
        one
        for seed, more in ((0, 0.0), (1, 0.1))
        for one in (
            run("e2fl_steady", mean=89.0, worst=84.0, variance=5.0, clients=91.0, seed=seed),
            run("ifca", *known, mean=90.0 + more, worst=77.0, variance=5.0 + 30 * more, clients=94.0, seed=seed),
            run("fedavg", known[0], mean=84.0, worst=71.0, variance=51.0, clients=89.0, seed=seed),
            run("fedavg", mean=99.0, seed=seed),
        )
    ]
    assert labels(our_tables.same_turns(runs)) == [("E2FL steady",), ("FedAvg",), ("IFCA, groups known",)]
    fedavg, ifca = our_tables.in_words(runs)
    assert fedavg.startswith("**FedAvg.** Worse: mean over groups 84.0 against 89.0")
    assert ifca.startswith("**IFCA, groups known.** Better: mean over groups 90.0 against 89.0; mean over clients")
    assert "Worse: worst group 77.0 against 84.0." in ifca
    assert "No clear difference: variance over groups 6.5 against 5.0; variance over clients" in ifca
    assert "Better" not in our_tables.in_words([one for one in runs if one.seed == 0])[1]  # one seed tells nothing


def test_ballots_are_listed_by_what_they_cost_those_without_averaging_last():
    bits = {"up_per_edge": 1.5, "down_per_edge": 2.0}
    runs = [
        run("e2fl", *SIXTEEN, "participation.name=by_group", worst=70.0, bits=bits),
        run("e2fl", *SIXTEEN, "participation.name=by_group", "algorithm.incumbents=2", worst=75.0, bits=bits),
        run("e2fl", *SIXTEEN, "participation.name=by_group", "algorithm.incumbents=5", worst=75.0, bits=bits),
        run("e2fl_steady", *SIXTEEN, worst=85.0, bits=bits),
        run("e2fl_steady", worst=84.0, bits={"up_per_edge": 18.9, "down_per_edge": 18.9}),
        run("e2fl_steady", "algorithm.ballot={name='buckets',uneven=[0.4,0.6]}", bits=bits),
        run("e2fl_steady", "model.weight_scale=1.4", bits=bits),
        run("e2fl", bits=bits),
        run("fedpm", "participation.name=by_group", bits=bits),
        run("fedpm", bits=bits),
        run("fedpm", "algorithm.clients_per_round=20", bits=bits),
    ]
    table = ballot_tables.ballots(runs, "demo")
    assert labels(table, 3) == [
        ("exact", "exact", "smoothing 5"),
        ("16 buckets", "32 buckets", "smoothing 5"),
        ("uneven 0.4 0.6", "exact", "smoothing 5"),
        ("16 buckets", "32 buckets", "incumbents 2"),
        ("16 buckets", "32 buckets", "none"),
        ("a mask (FedPM)", "float32", "–"),
        ("a mask (FedPM, uniform draws)", "float32", "–"),
    ]
    assert table.rows[1][4:7] == ("1.50", "2.00", "4")
    points = ballot_tables.ballot_points(runs)
    assert [(point["bits"], point["worst"]) for point in points][:2] == [(18.9, 84.0), (1.5, 85.0)]
    assert figures.worth_drawing(points)
    assert not figures.worth_drawing(points[:1])


def test_ballots_on_the_mnist_files_are_those_with_60_images():
    sixty = "data.samples_per_client=60"
    runs = [
        run("e2fl_steady", experiment="table1"),
        run("e2fl_steady", sixty, *SIXTEEN, experiment="table1", rounds=100),
    ]
    assert labels(ballot_tables.ballots(runs, "table1", 60), 2) == [("16 buckets", "32 buckets")]


def test_rounds_at_scale_are_rows_of_their_own():
    runs = [run(method, experiment="table1", rounds=rounds) for method, rounds in (("e2fl", 100), ("e2fl_steady", 50))]
    assert labels(our_tables.at_scale(runs, 233), 2) == [("E2FL, as in the paper", "100"), ("E2FL steady", "50")]
    assert our_tables.at_scale(runs, 60).empty


@pytest.mark.parametrize(("changes", "row"), [((), "as shipped"), (("learner.round_decay=0.9",), "rate times 0.9")])
def test_single_changes_are_named_in_words(changes, row):
    assert our_tables.single_changes([run("e2fl_steady", *changes)]).rows[0][0].startswith(row)


def test_the_single_changes_are_those_of_runs_with_seats():
    assert our_tables.single_changes([run("e2fl_steady", "participation.name=uniform")]).empty


def test_a_run_with_a_setting_that_no_algorithm_has_is_no_variation_of_the_experiment():
    known = run("e2fl_steady")
    unknown = Entry(known.config | {"algorithm": known.config["algorithm"] | {"patience": 2}}, known.history)
    assert len(our_tables.variations([known, unknown], "demo")) == 1


def test_points_of_the_plot_tell_broadcasts_apart():
    bits = {"up_per_edge": 1.5, "down_per_edge": 2.0}
    finer = (SIXTEEN[0], "algorithm.downlink={name='buckets',buckets=256}")
    runs = [run("e2fl_steady", *sent, bits=bits) for sent in (SIXTEEN, finer)]
    found = {(point["kind"], point["label"]) for point in ballot_tables.ballot_points(runs)}
    assert found == {("buckets", "16/32"), ("buckets", "16/256")}


@pytest.mark.parametrize(
    ("up", "down", "kind", "label"),
    [
        ("{name='exact'}", "{name='exact'}", "exact", ""),
        ("{name='moves'}", "{name='buckets',buckets=12,finer=8}", "moves", "16x4/12x8"),
        ("{name='moves',steps=24,finer=1}", "{name='buckets',buckets=64}", "moves", "24/64"),
        ("{name='buckets',uneven=[0.4,0.5,0.6]}", "{name='exact'}", "buckets", "4 uneven"),
        ("{name='boundary'}", "{name='buckets',buckets=32}", "boundary", "32"),
    ],
)
def test_points_of_the_plot_have_short_labels(up, down, kind, label):
    sent = run("e2fl_steady", f"algorithm.ballot={up}", f"algorithm.downlink={down}", bits={"up_per_edge": 1.5})
    assert [(point["kind"], point["label"]) for point in ballot_tables.ballot_points([sent])] == [(kind, label)]


def test_causes_are_runs_of_one_hundred_rounds_with_sixty_images_and_known_changes():
    few = "data.samples_per_client=60"
    runs = [
        run("e2fl", few, experiment="table1", rounds=100),
        run("e2fl", few, "data.angle_step=10", experiment="table1", rounds=100),
        run("fedavg", few, "data.angle_step=10", experiment="table1", rounds=100),
        run("e2fl_present_only", few, experiment="table1", rounds=100),
        run("e2fl", few, f"data.group_sizes={[100] * 10}", experiment="table1", rounds=100),
        run("e2fl", few, f"data.group_sizes={[50] * 20}", experiment="table1", rounds=100),
        run("e2fl", few, "model.keep=0.3", experiment="table1", rounds=100),
        run("e2fl", few, "data.angle_step=20", experiment="table1", rounds=50),
        run("e2fl", "data.angle_step=5", experiment="table1", rounds=100),
    ]
    table = causes(runs)
    assert [row[:3] for row in table.rows] == [
        ("as shipped", "E2FL", "1"),
        ("10 degrees between groups instead of 36", "E2FL", "1"),
        ("10 degrees between groups instead of 36", "FedAvg", "1"),
        ("absent groups do not vote", "E2FL", "1"),
        ("ten groups of 100 clients", "E2FL", "1"),
    ]


def test_causes_are_compared_on_the_same_seeds():
    few = "data.samples_per_client=60"
    shipped = [run("e2fl", few, experiment="table1", rounds=100, seed=seed, mean=80.0 + seed) for seed in (0, 1)]
    changed = run("e2fl", few, "learner.learning_rate=0.05", experiment="table1", rounds=100)
    rows = causes([*shipped, changed]).rows
    assert [row[:4] for row in rows] == [
        ("as shipped", "E2FL", "1", "80.00"),
        ("a rate of 0.05, the same as signed initial scores", "E2FL", "1", "80.00"),
    ]
    assert causes(shipped).rows[0][2] == "2"
    later = run("e2fl", few, "data.angle_step=10", experiment="table1", rounds=100, seed=1)
    fair = causes([*shipped, later, run("e2fl", few, "data.angle_step=10", experiment="table1", rounds=100), changed])
    assert {row[2] for row in fair.rows} == {"1"}  # seed 0, the only one that all have
    other = run("e2fl_present_only", few, "learner.learning_rate=0.05", experiment="table1", rounds=100, mean=10.0)
    assert ("absent groups do not vote, a rate of 0.05", "E2FL") in labels(causes([*shipped, changed, other]), 2)


def test_a_run_of_the_demo_with_more_rounds_does_not_replace_the_others():
    runs = [run(method, seed=seed) for method in our_tables.DEMO for seed in (0, 1)]
    longer = run("e2fl_steady", rounds=300, mean=10.0, worst=0.0, variance=900.0)
    runs = [Entry(one.config, (*one.history, *longer.history)) if one.seed == 0 else one for one in runs]
    assert {row[1:3] for row in our_tables.demo(runs).rows} == {("2", "80.00")}
    assert all(set(row[1:]) == {"yes"} for row in our_tables.criteria(runs).rows[:4])


def test_a_run_of_the_demo_that_has_only_begun_is_in_no_table():
    runs = [run(method) for method in our_tables.DEMO]
    begun = run("e2fl_steady", seed=1, rounds=10, mean=10.0, worst=0.0)
    others = [run(method, seed=1) for method in our_tables.DEMO if method != "e2fl_steady"]
    local = Entry(run("local", seed=2, rounds=5).config, run("local", rounds=5).history)  # not finished
    assert labels(our_tables.demo([*runs, begun]), 3) == labels(our_tables.demo(runs), 3)
    assert our_tables.criteria([*runs, *others, begun]).titles == ("", "seed 0")
    assert our_tables.ablation([begun]).empty
    assert our_tables.demo([local]).empty


def test_validation_rows_and_other_networks_of_adult_are_not_on_the_leaderboard():
    def adult(*changes):
        return run("fedavg", *changes, experiment="adult", rounds=10)

    runs = [adult(), adult("data.pooled_validation_share=0.2"), adult("model.hidden=[128,128]")]
    assert [heading for heading, _ in leaderboard(runs)] == ["Adult: alpha = 5000"]


def test_sentences_about_rounds_read_the_shipped_setting_and_not_another_run():
    few = "data.samples_per_client=60"
    other = run("e2fl", few, "data.angle_step=10", experiment="table1", rounds=50, mean=99.0)
    shipped = run("e2fl", few, experiment="table1", rounds=50, mean=44.4)
    assert "E2FL has 44.4 % over clients after 50 rounds" in pages([other, shipped])["results.md"]
