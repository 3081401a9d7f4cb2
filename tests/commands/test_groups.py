"""`e2fl groups`: which number of groups it proposes, and what it says about others."""

from e2fl.runs.group_survey import Row, Survey


def row(groups, silhouette, stability=0.95):
    return Row(groups, stability, silhouette, blur=0.1, cloud=0.5, smallest=10, cost=0.5)


def test_a_flat_silhouette_names_the_range_and_the_most_groups_that_are_as_stable():
    survey = Survey(
        (row(4, 0.1), row(5, 0.2), row(8, 0.2), row(10, 0.199, 0.945), row(12, 0.2, 0.7))
    )
    assert survey.best.groups == 5
    assert "flat from 5 to 12 groups" in survey.advice()
    assert "fewer groups hide small ones" in survey.advice()
    assert 'grouping = { name = "rank_clustering", groups = 10 }' in survey.advice().replace(
        "'", '"'
    )


def test_a_single_best_number_has_no_range():
    assert "flat" not in Survey((row(2, 0.1), row(3, 0.2), row(4, 0.15))).advice()
