"""Adult: the paper's statistics, and groups that lie inside clients."""

import numpy as np
import pytest

from e2fl import metrics
from e2fl.config.experiment import from_dict
from e2fl.data.sets.adult import FEMALE, MALE, Adult
from e2fl.errors import ConfigError
from e2fl.report.finish import printed
from e2fl.report.from_runs import study_of
from e2fl.runs.runner import run_experiment


@pytest.fixture(scope="module")
def adult(real_data):
    return Adult(dir=str(real_data))


def rate(values):
    return 100 * np.mean(values)


def test_rows_and_both_parts_have_the_statistics_of_the_paper(adult, real_data):
    assert len(adult.table) == 45_222
    sex, y = adult.sex, adult.y
    assert rate(sex == MALE) == pytest.approx(67.50, abs=0.005)
    assert rate(y[sex == MALE]) == pytest.approx(31.25, abs=0.005)
    assert rate(y[sex == FEMALE]) == pytest.approx(11.36, abs=0.005)
    for data in (adult, Adult(seed=1, dir=str(real_data))):
        train, test = data.split
        assert (len(train), len(test)) == (33_916, 11_306)
        assert not set(train.tolist()) & set(test.tolist())
        for rows in (train, test):
            # The paper has 31.4 and 30.8 for men, 11.3 for women; a draw may be off by a percent.
            assert rate(sex[rows] == MALE) == pytest.approx(67.50, abs=0.01)
            assert rate(y[rows][sex[rows] == MALE]) == pytest.approx(31.1, abs=1.2)
            assert rate(y[rows][sex[rows] == FEMALE]) == pytest.approx(11.3, abs=1.2)


def test_101_inputs_without_sex_and_with_it(adult, real_data):
    pooled = np.concatenate([adult.client(n).train.x for n in range(5)]).astype(np.float64)
    assert pooled.shape[1:] == adult.shape == (101,)
    assert (pooled[:, :96].sum(axis=1) == 7).all()  # seven columns of words
    assert pooled[:, 96:].mean(axis=0) == pytest.approx(np.zeros(5), abs=1e-4)
    assert pooled[:, 96:].std(axis=0) == pytest.approx(np.ones(5), abs=1e-4)
    with_sex = Adult(dir=str(real_data), sex_as_input=True).client(0).train
    assert with_sex.x.shape[1] == 101
    assert np.array_equal(with_sex.x[:, 100], with_sex.group)


def test_all_clients_share_one_test_set(adult):
    assert len({id(adult.client(number).test) for number in adult.population.ids}) == 1
    assert adult.population.groups == 2
    assert set(adult.population.declared.values()) == {None}
    assert adult.client(0).groups() == [FEMALE, MALE]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"min_partition_size": 10_000}, "num_partitions must be 1 to 3"),
        ({"clients": 0}, "at least 1"),
        ({"partition": "random"}, "partition"),
        ({"partition_by": "race"}, "partition_by"),
        ({"test_share": 1.0}, "test_share"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(real_data, settings, word):
    with pytest.raises(ConfigError, match=word):
        Adult(dir=str(real_data), **settings).client(0)


def small(algorithm, **data):
    return from_dict(
        {
            "name": "small",
            "rounds": 1,
            "evaluate_every": 1,
            "data": {"name": "adult", **data},
            "model": {"name": "mlp", "hidden": [16]},
            "learner": {"learning_rate": 0.05, "batch_size": 64, "epochs": 1},
            "algorithm": {"clients_per_round": 5, **algorithm},
        }
    )


def test_a_run_on_adult_measures_women_and_men_apart(real_data, tmp_path):
    experiment = small({"name": "fedavg"}, dir=str(real_data))
    data = experiment.build.data()
    found = run_experiment(experiment, out=tmp_path / "run", data=data)
    # The same from the model itself, row by row.
    model = experiment.build.model(data)
    test = data.client(0).test
    y_hat = model.outputs(found.state.params, test.inputs()).argmax(dim=1).numpy()
    expected = metrics.signed_differences(test.y, y_hat, sensitive_features=test.group)
    assert found.summary["protected"] == pytest.approx(expected | {"eod_std": 0})  # the same rows
    assert found.summary["clients"]["mean"] == pytest.approx(rate(test.y == y_hat))
    for sex, name in ((FEMALE, "female"), (MALE, "male")):
        expected = rate((test.y == y_hat)[test.group == sex])
        assert found.summary["groups"][name]["accuracy"] == pytest.approx(expected)
        assert found.summary["groups"][name]["clients"] == 5
    rows = [row for row in found.clients if row["client"] == "0"]
    assert [(row["group"], row["n"]) for row in rows] == [("female", 3674), ("male", 7632)]


def test_e2fl_votes_for_each_sex_and_serves_each_row_with_the_model_of_its_own(real_data):
    experiment = small({"name": "e2fl"}, dir=str(real_data))
    data = experiment.build.data()
    run = run_experiment(experiment, data=data)
    summary = run.summary
    assert sorted(run.state.groups) == [FEMALE, MALE]
    learner = experiment.build.learner(experiment.build.model(data))
    masks = experiment.build.algorithm().describe(run.state).models()
    test = data.client(0).test
    for group, name in ((FEMALE, "female"), (MALE, "male")):
        tally = learner.tally(learner.weights_of(masks[f"group{group}"]), test.of_group(group))
        assert summary["groups"][name]["accuracy"] == pytest.approx(tally.accuracy)
    for view, model in (("global", "global"), ("as_group0", "group0")):
        pooled = learner.tally(learner.weights_of(masks[model]), test)
        assert summary["views"][view]["clients"]["mean"] == pytest.approx(pooled.accuracy)
    # Two ballots of each of five clients went up, one invitation of each came down.
    up, down = (summary["bytes"][f"{way}_per_client_round"] for way in ("up", "down"))
    assert up > 1.9 * down
    shown = printed(study_of([run]))
    assert "protected groups" in shown
    assert f"{summary['protected']['di']:+.4f}".replace("-", "\N{MINUS SIGN}") in shown
    difference = summary["groups"]["female"]["f1"] - summary["groups"]["male"]["f1"]
    assert difference == pytest.approx(summary["protected"]["di"])


def test_one_ballot_a_client_goes_to_the_sex_of_most_rows(real_data):
    experiment = small({"name": "e2fl", "inside": "majority"}, dir=str(real_data))
    found = run_experiment(experiment)
    assert sorted(found.state.groups) == [MALE]  # at alpha 5000 every client has more men


def test_clients_of_one_sex_vote_for_that_sex_only(real_data):
    experiment = small({"name": "e2fl"}, dir=str(real_data), partition="by_group")
    found = run_experiment(experiment)
    assert sorted(found.state.groups) == [FEMALE, MALE]
    up, down = (found.summary["bytes"][f"{way}_per_client_round"] for way in ("up", "down"))
    assert up == pytest.approx(down, rel=0.01)  # one ballot each
