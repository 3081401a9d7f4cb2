"""The pages made from the ledger: tables, claims, figures; and that the committed pages are what the ledger gives."""

import math
import re
from pathlib import Path

import pytest

from e2fl.cli import main
from e2fl.config.experiment import load, with_seed
from e2fl.report.intervals import over_seeds
from e2fl.reproduce import claims, figures, our_tables, paper_tables
from e2fl.reproduce.leaderboard import NOT_COMPARED, leaderboard, shown_as
from e2fl.reproduce.ledger import Entry, best_of, read_entries
from e2fl.reproduce.pages import PAGES, pages
from e2fl.reproduce.selection import INK, NARROW, fewer_images, select
from e2fl.reproduce.studies import paper
from e2fl.reproduce.tables import NONE, repeats_of

ROOT = Path(__file__).parent.parent
RESULTS, DOCS = ROOT / "results", ROOT / "docs"


def line(number, mean=50.0, variance=9.0, group_variance=16.0, **more):
    spread = {"mean": mean, "worst10": mean - 10, "best10": mean + 10, "variance": variance}
    return {
        "round": number,
        "user": spread,
        "group": spread | {"variance": group_variance},
        "groups": {name: {"clients": 1, "accuracy": mean, "loss": 1.0} for name in ("G1", "G2")},
        "bytes": {"up_total": number * 25 * 2**20, "down_total": number * 50 * 2**20},
        "asked": 25,
        **more,
    }


def entry(method, *lines, seed=0, experiment="table1", finished=False, **data):
    changes = [f"data.{name}={value}" for name, value in data.items()]
    config = with_seed(load(experiment, changes, algorithm=method), seed).to_dict()
    return Entry(config, lines, {"rounds": lines[-1]["round"]} if finished else None)


def table1(runs, samples=233):
    return paper_tables.table1(select(runs, "table1", fewer_images(samples)), papers=samples == 233)


def rows_of(table, label):
    return [row[1:] for row in table.rows if row[0] == label]


def test_a_row_is_the_papers_number_ours_and_the_difference():
    table = table1([entry("fedavg", line(100, mean=90.0))])
    papers, ours, difference = rows_of(table, "FedAvg")
    assert papers[:4] == ("paper", "5", "3000", "93.89")
    assert ours[:4] == ("ours", "1", "100", "90.00")
    assert difference[3] == "-3.89"
    assert ours[-2:] == ("1.00", "2.00")  # MiB


def test_several_seeds_have_an_interval_and_one_seed_has_none():
    runs = [entry("fedavg", line(100, mean=mean), seed=seed) for seed, mean in enumerate((90.0, 92.0, 94.0))]
    ours = rows_of(table1(runs), "FedAvg")[1]
    half = over_seeds([90.0, 92.0, 94.0]).half
    assert ours[1] == "3"
    assert ours[3] == f"92.00 ± {half:.2f}"


def test_a_table_names_its_holes():
    table = table1([entry("fedavg", line(100))])
    assert "q-FFL" in table.not_run
    assert "FedAvg" not in table.not_run
    assert rows_of(table, "q-FFL")[1][:3] == ("ours", "0", NONE)
    assert not table.empty
    assert table1([]).empty


def test_a_run_with_other_data_is_not_in_the_table():
    runs = [entry("fedavg", line(100), samples_per_client=60), entry("qffl", line(100), angle_step=10)]
    assert table1(runs).empty
    assert rows_of(table1(runs, 60), "FedAvg")[1][0] == "ours"
    assert rows_of(table1(runs, 60), "q-FFL") == []


def test_a_run_of_a_method_that_was_set_up_otherwise_is_not_in_the_table():
    run = entry("qffl", line(100))
    other = Entry(run.config | {"algorithm": run.config["algorithm"] | {"q": 5.0}}, run.history)
    assert table1([other]).empty
    assert not table1([run]).empty


def test_the_round_that_most_seeds_share_is_shown_beside_the_longest_run():
    long = entry("e2fl", line(300), line(1000))
    short = [entry("e2fl", line(300), seed=seed) for seed in (1, 2)]
    assert [(repeats.round, len(repeats.entries)) for repeats in repeats_of([long, *short])] == [(300, 3), (1000, 1)]


def test_one_seed_with_all_rounds_of_the_paper_does_not_hide_the_others():
    runs = [entry("e2fl", line(300), line(3000)), *(entry("e2fl", line(300), seed=seed) for seed in (1, 2, 3, 4))]
    assert [(repeats.round, len(repeats.entries)) for repeats in repeats_of(runs)] == [(300, 5), (3000, 1)]


def test_three_seeds_are_shown_and_judged_however_far_one_of_them_was_continued():
    both = pair(3, (5, 6, 5), (50, 52, 49))
    longer = [Entry(run.config, (*run.history, line(1100))) if run.seed == 0 else run for run in both]
    assert [(repeats.round, len(repeats.entries)) for repeats in repeats_of(longer[::2])] == [(100, 3), (1100, 1)]
    (finding,) = found(longer, GROUPS)
    assert finding.verdict == "holds"
    assert "after 100 of 3000 rounds, 3 seeds" in finding.figure


def test_rounds_beyond_the_papers_are_not_compared_with_it():
    run = entry("fedavg", line(3000, mean=90.0), line(5000, mean=99.0))
    _, ours, difference = rows_of(table1([run]), "FedAvg")
    assert ours[:4] == ("ours", "1", "3000", "90.00")
    assert difference[3] == "-3.89"
    only = entry("fedavg", line(5000, mean=99.0))
    assert rows_of(table1([only]), "FedAvg")[1][2] == "5000"


def test_seeds_that_have_only_begun_do_not_hide_a_long_run():
    runs = [entry("e2fl", line(50), line(1000)), entry("e2fl", line(50), seed=1)]
    assert [(repeats.round, len(repeats.entries)) for repeats in repeats_of(runs)] == [(1000, 1)]
    three = [entry("e2fl", line(2), line(20), seed=seed) for seed in range(3)]
    begun = entry("e2fl", line(2), seed=3)
    assert [(repeats.round, len(repeats.entries)) for repeats in repeats_of([*three, begun])] == [(20, 3)]


def test_a_claim_is_not_tested_if_the_methods_share_no_evaluated_round():
    runs = [entry("e2fl", line(50)), entry("fedavg", line(100))]
    assert {finding.verdict for finding in claims.findings(runs)} == {"not tested"}
    assert repeats_of([Entry(runs[0].config, ())]) == []


def test_of_two_entries_at_the_same_round_the_finished_one_counts():
    begun, done = entry("e2fl", line(50)), entry("e2fl", line(50), finished=True)
    assert [kept.finished for kept in (*best_of([begun, done]), *best_of([done, begun]))] == [True, True]


def test_entries_of_one_run_add_their_evaluated_rounds():
    here = {"machine": {"instructions": "AVX2", "cores": 2}}
    runs = [entry("e2fl", line(30), line(60)), entry("e2fl", line(50), line(100))]
    (kept,) = best_of([Entry(run.config, run.history, record=here) for run in runs])
    assert [found["round"] for found in kept.history] == [30, 50, 60, 100]


def test_traffic_of_a_client_is_unknown_if_the_last_round_selected_none():
    assert math.isnan(entry("e2fl", line(50, asked=0)).mib("up"))
    assert entry("e2fl", line(50)).mib("up") == 1.0


def test_pages_are_left_alone_if_the_ledger_is_empty(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "ballots.svg").write_text("old")
    (tmp_path / "results.md").write_text("old")
    assert main(["reproduce", "--write-docs", "--ledger", str(tmp_path / "none"), "--docs", str(tmp_path)]) == 2
    assert (tmp_path / "figures" / "ballots.svg").read_text() == (tmp_path / "results.md").read_text() == "old"


def test_of_two_entries_of_one_run_the_farther_counts():
    short, long = entry("e2fl", line(50)), entry("e2fl", line(50), line(100))
    assert [kept.rounds for kept in best_of([long, short])] == [100]


def test_clusters_that_were_found_fill_table_6_and_no_column_of_declared_groups():
    run = entry("q2", line(100, mean=80.0, groups_are="found"), experiment="table6")
    ours = rows_of(paper_tables.table6([run]), "Q = 2")[1]
    assert ours[3] == "80.00"
    assert leaderboard([run]) == []  # the number of clusters is not a method
    found = entry("rank_clustering", line(100, mean=80.0, groups_are="found"), experiment="femnist")
    ((_, board),) = leaderboard([found])
    columns = dict(zip(board.titles, board.rows[0], strict=True))
    assert columns["worst group"] == NONE
    assert columns["worst 10 % of clients"] == "70.00"


def test_a_page_says_nothing_about_runs_that_the_ledger_does_not_have():
    text = "".join(pages([entry("fedavg", line(100))]).values())
    for told in (
        "66.4 instead of 53.1",
        "58.3 %",
        "schedules change little",
        "comes nearest to it",
        "0.2 has a lower mean",
    ):
        assert told not in text


def test_verdicts_are_counted():
    text = claims.counted(claims.findings([]))
    assert text == "Rows by verdict: *holds* 0, *does not hold* 0, *inconclusive* 0, *not tested* 31."


def found(runs, start):
    """The findings of a claim in the settings that were run; all of them if none was."""
    own = [finding for finding in claims.findings(runs) if finding.claim.startswith(start)]
    return [finding for finding in own if finding.verdict != "not tested"] or own


def pair(seeds, e2fl, fedavg):
    return [
        entry(method, line(100, group_variance=value[seed]), seed=seed)
        for seed in range(seeds)
        for method, value in (("e2fl", e2fl), ("fedavg", fedavg))
    ]


GROUPS = "FairMNISTRotate: E2FL lowers the variance over groups"


def test_a_claim_holds_if_the_paired_interval_says_so():
    (finding,) = found(pair(3, (5, 6, 5), (50, 52, 49)), GROUPS)
    assert finding.verdict == "holds"
    assert finding.figure.startswith("-89 % after 100 of 3000 rounds, 3 seeds")
    assert finding.setting == "233 images per client"


def test_a_claim_does_not_hold_if_the_interval_lies_on_the_other_side():
    (finding,) = found(pair(3, (50, 52, 49), (5, 6, 5)), GROUPS)
    assert finding.verdict == "does not hold"


@pytest.mark.parametrize(
    "runs", [[], pair(1, (5,), (50,)), pair(2, (5, 5), (50, 50)), pair(3, (5, 90, 40), (50, 6, 49))]
)
def test_a_claim_is_inconclusive_on_one_or_two_seeds_or_within_noise_and_not_tested_without_runs(runs):
    finding = found(runs, GROUPS)[0]
    assert finding.verdict == ("inconclusive" if runs else "not tested")
    assert finding.figure == "not run" if not runs else "after 100 of 3000 rounds" in finding.figure


def test_a_claim_has_a_row_for_each_setting_whether_it_was_run_or_not():
    rows = [finding for finding in claims.findings(pair(1, (5,), (50,))) if finding.claim == GROUPS]
    assert [(row.setting, row.verdict) for row in rows] == [
        ("233 images per client", "inconclusive"),
        ("60 images per client", "not tested"),
    ]


def test_a_claim_is_tested_at_the_last_round_that_both_methods_have():
    runs = [entry("e2fl", line(50), line(100), line(150)), entry("fedavg", line(50), line(100))]
    assert "after 100 of 3000 rounds" in found(runs, GROUPS)[0].figure


def test_q_ffl_has_twice_the_rounds_of_fedavg_as_in_the_paper():
    runs = [
        entry("qffl", line(50, group_variance=8), line(100, group_variance=30)),
        entry("fedavg", line(50, group_variance=15), line(100, group_variance=10)),
    ]
    (finding,) = found(runs, "FairMNISTRotate: q-FFL raises the variance over groups")
    assert finding.figure == "+100 % after 100 of 6000 rounds (FedAvg: 50), 1 seed"


def test_the_claims_follow_from_the_papers_tables():
    one, two, four = paper()["table1"], paper()["table2"], paper()["table4"]
    change = {
        (method, level): 100 * (one[method][level]["variance"] / one["fedavg"][level]["variance"] - 1)
        for method in ("e2fl", "qffl")
        for level in ("user", "group")
    }
    for claim in claims.claims():
        if claim.text.startswith("FairMNISTRotate"):
            level = "user" if "clients" in claim.text else "group"
            assert claim.paper == pytest.approx(change[claim.method, level], abs=1)
        elif claim.text.startswith("FEMNIST") and "accuracy" in claim.text:
            assert claim.paper == pytest.approx(two[claim.method]["user"]["mean"] - two["fedavg"]["user"]["mean"])
        elif claim.text.startswith("FEMNIST"):
            ratio = two[claim.method]["user"]["variance"] / two["fedavg"]["user"]["variance"]
            assert claim.paper == pytest.approx(100 * (ratio - 1), abs=1)
        else:
            alpha = "5000" if "alpha 5000" in claim.text else "1"
            own, dense = four[claim.method][alpha], four["fedavg"][alpha]
            if "accuracy" in claim.text:
                assert claim.paper == pytest.approx(own["accuracy"] - dense["accuracy"], abs=0.005)
            else:
                figure = "eod" if "EOD" in claim.text else "di"
                assert claim.paper == pytest.approx(100 * (own[figure] / dense[figure] - 1), abs=1)


def test_the_order_of_the_rules_is_judged_over_seeds():
    def run(rule, matched, seed):
        return entry(rule, line(100, inference={"matched": matched}), seed=seed, experiment="inference")

    good = [
        run(rule, matched, seed)
        for seed in (0, 1, 2)
        for rule, matched in (("lowest_loss", 90), ("binary", 50), ("one_shot", 25))
    ]
    (finding,) = found(good, "Group inference")
    assert finding.verdict == "holds"
    assert "lowest_loss 90.0 %" in finding.figure
    mixed = [*good[:8], run("one_shot", 60, 2)]  # 25, 25 and -10 points: within noise
    assert found(mixed, "Group inference")[0].verdict == "inconclusive"
    bad = [*(one for one in good if one.method != "one_shot"), *(run("one_shot", 60, seed) for seed in (0, 1, 2))]
    assert found(bad, "Group inference")[0].verdict == "does not hold"
    assert found(good[:6], "Group inference")[0].verdict == "inconclusive"


def test_the_order_of_the_rules_is_judged_in_each_setting_that_was_run():
    runs = [
        entry(rule, line(100, inference={"matched": 50.0}), experiment="inference", **fewer)
        for rule in ("lowest_loss", "binary", "one_shot")
        for fewer in ({}, {"samples_per_client": 60})
    ]
    settings = [finding.setting for finding in found(runs, "Group inference")]
    assert settings == ["233 images per client", "60 images per client"]
    assert [finding.setting for finding in found(runs[1::2], "Group inference")] == ["60 images per client"]


def test_figure_3_shows_the_global_model_beside_the_groups_own_up_to_the_round_all_have():
    views = {"global": {"groups": {"G1": {"loss": 2.0}, "G2": {"loss": 3.0}}}}
    runs = [entry("e2fl", *(line(n, views=views) for n in (50, 100, 150))), entry("fedavg", line(50), line(100))]
    rows = figures.loss_rows(runs)
    assert {row["method"] for row in rows} == {"FedAvg", "E2FL", "E2FL (GM)"}
    assert max(row["round"] for row in rows) == 100
    assert {row["loss"] for row in rows if row["method"] == "E2FL (GM)"} == {2.0, 3.0}
    assert figures.loss_rows([entry("e2fl", line(50))]) == []


def test_the_figure_of_inference_has_every_round_of_training_and_every_evaluation():
    def inference(matched, *rounds):
        return {"matched": matched, "rounds": [{"round": number, "matched": share} for number, share in rounds]}

    # Runs that evaluate other rounds may have been merged, so a round may be told twice.
    lines = (
        line(2, inference=inference(60.0, (1, 30.0), (2, 40.0))),
        line(3, inference=inference(70.0, (2, 40.0), (3, 50.0))),
    )
    other = line(2, inference=inference(80.0, (1, 50.0), (2, 60.0)))
    runs = [
        entry("binary", *lines, experiment="inference"),
        entry("binary", other, seed=1, experiment="inference"),
        entry("one_shot_warm", line(1), line(2, inference={"matched": 10.0}), experiment="inference"),
    ]
    shown = [
        (row["rule"], row["start"], row["all"], row["round"], row["matched"]) for row in figures.matched_rows(runs)
    ]
    assert shown == [
        ("binary", "random", False, 1, 40.0),
        ("binary", "random", False, 2, 50.0),
        ("binary", "random", False, 3, 50.0),
        ("binary", "random", True, 2, 70.0),
        ("binary", "random", True, 3, 70.0),
        ("one shot", "clustered (warm)", True, 2, 10.0),
    ]


def test_figures_are_written_as_svg_and_png(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    runs = [
        entry("lowest_loss", *(line(n, inference={"matched": n / 2}) for n in (50, 100)), experiment="inference"),
        entry("fedavg", line(50), line(100)),
    ]
    for name, chart in (("a", figures.figure_inference(runs, 233)), ("b", figures.figure3(runs, 233))):
        svg, png = figures.write(chart, tmp_path, name)
        assert svg.read_text().startswith("<svg")
        assert png.read_bytes().startswith(b"\x89PNG")


def test_deleting_the_pages_and_running_the_command_brings_them_back(tmp_path, capsys):
    pytest.importorskip("jinja2")
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    assert main(["reproduce", "--write-docs", "--ledger", str(RESULTS), "--docs", str(tmp_path)]) == 0
    made = {path.name for path in (tmp_path / "figures").iterdir()}
    assert made == {path.name for path in (DOCS / "figures").iterdir()}
    for name in PAGES:
        assert (tmp_path / name).read_text() == (DOCS / name).read_text(), f"run: e2fl reproduce --write-docs ({name})"
        for target in re.findall(r"\]\((figures/[^)]+)\)", (DOCS / name).read_text()):
            assert (DOCS / target).is_file()


@pytest.mark.parametrize("scaling", [{}, INK], ids=["standardised", "ink"])
def test_the_page_shows_what_the_ledger_says_of_frl_on_a_narrow_network(scaling):
    page = (DOCS / "results.md").read_text()
    runs = [run for run in best_of(read_entries(RESULTS)) if run.method == "frl"]
    (row,) = rows_of(paper_tables.table2(select(runs, "femnist", NARROW | scaling), compared=False), "FRL")
    assert f"| FRL | {' | '.join(row)} |" in page


def test_the_page_explains_frls_lead_only_where_the_runs_show_it():
    def narrow(method, *means):
        changes = ["model.name=lenet_small"]
        lines = (
            line(n, mean=m, inference={"found": {"0": 282, "1": 18}}) for n, m in zip((20, 100), means, strict=True)
        )
        return Entry(load("femnist", changes, algorithm=method).to_dict(), tuple(lines))

    others = [narrow("e2fl", 50.0, 55.0), narrow("e2fl_present_only", 52.0, 58.0)]
    told = "what differs is the vote of the second group"
    assert told in pages([*others, narrow("frl", 60.0, 65.0)])["results.md"]
    for runs in ([*others, narrow("frl", 60.0, 54.0)], [narrow("frl", 60.0, 65.0)], others):
        assert told not in pages(runs)["results.md"]


def test_the_leaderboard_has_every_method_of_the_ledger_and_no_point_of_an_ablation():
    page = (DOCS / "leaderboard.md").read_text()
    runs = best_of(read_entries(RESULTS))
    for run in runs:
        if is_as_shipped(run) and run.experiment not in NOT_COMPARED:
            assert f"| {shown_as(run)} |" in page
            assert math.isfinite(run.mib("up"))
    assert "fedavg (by_group)" in page
    assert "moves, 12 steps" in page
    for point in ("incumbents = ", "learning_rate = ", "local_cosine", "weight_scale", "16 buckets"):
        assert point not in page


def is_as_shipped(run):
    return run.folder.parent.parent.name == "as-shipped"


def test_the_leaderboard_names_the_settings_of_training_that_differ():
    named = {our_tables.described(run) for run in read_entries(RESULTS)}
    assert {"e2fl", "e2fl_steady", "fedavg (by_group)", "e2fl (incumbents = 2, uniform)"} <= named
    assert "e2fl_steady (16 buckets up, 32 buckets down)" in named
