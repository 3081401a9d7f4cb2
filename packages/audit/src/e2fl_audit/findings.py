"""The findings of an audit: what findings.j2 says in sentences and key figures."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import numpy as np

from e2fl_audit import wording
from e2fl_audit.clients import ClientSpread
from e2fl_audit.counting import UNDER_SHARE, RateTable
from e2fl_audit.reader import Table
from e2fl_audit.wording import percent, ratio

SAME = 0.01  # accuracies closer than this are called about the same
SURELY_SAME = 0.05  # unless their intervals allow a difference of this size
FEW = ("too few rows", "too few clients", UNDER_SHARE)
# Who is found and selected comes before how often it is right.
ORDER = ("true_positive_rate", "selection_rate", "accuracy", "measure", "false_positive_rate")


@dataclass(frozen=True)
class Figure:
    """A key figure: what it is, its value, and a sentence about it."""

    title: str
    value: str
    text: str


def find(
    table: Table,
    results: list[list[RateTable]],
    overall: Sequence[RateTable],
    spread: ClientSpread | None,
) -> tuple[list[Figure], list[str]]:
    """Return the key figures and the sentences about a table."""
    figures: list[Figure] = []

    def figure(title: str, value: str, caller: Callable[[], str]) -> str:
        figures.append(Figure(title, value, " ".join(caller().split())))
        return ""

    facts = _facts(table, results, overall) | {"spread": spread, "figure": figure}
    text = environment().overlay(autoescape=False)  # it is escaped where it is inserted
    paragraphs = text.get_template("findings.j2").render(facts).split("\n\n")
    sentences = [" ".join(paragraph.split()) for paragraph in paragraphs]
    return figures[:4], [sentence for sentence in sentences if sentence]


@cache
def environment() -> jinja2.Environment:
    """Return the templates of the package, which escape what is inserted."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("e2fl_audit", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("percent", "whole", "p_value", "ratio"):
        templates.filters[name] = getattr(wording, name)
    templates.filters["name"] = wording.for_page
    templates.globals |= vars(wording) | {"isnan": math.isnan}
    templates.globals |= {"phrase": _phrase, "phrases": _phrases}
    return templates


def _facts(
    table: Table, results: list[list[RateTable]], overall: Sequence[RateTable]
) -> dict[str, Any]:
    """Return what the template chooses its words by."""
    groupings = _worst_first(results)
    compared = [one for tables in groupings for one in tables]
    rank = {key: position for position, key in enumerate(ORDER)}
    main = sorted((groupings or [[]])[0], key=lambda one: rank.get(one.rate.key, len(rank)))
    heads = [one for one in main if one.rate.key in ("accuracy", "measure")] or main
    same = None if table.is_measure else next((one for one in heads if _about_same(one)), None)
    said = {one.rate.key for one in compared if one.significant or one is same}
    return {
        "values": lambda one: [
            f"{percent(row.value)} in {_phrase(row, one)}" for row in one.judged
        ],
        "ratios": lambda rows: [f"{row.group} ({ratio(row.ratio)})" for row in rows],
        "with_rates": lambda few: [f"{group} ({', '.join(rates)})" for group, rates in few.items()],
        "source": table,
        "results": results,
        "groupings": groupings,
        "compared": compared,
        "main": main,
        "head": heads[0] if heads else None,
        "same": same,
        "widest": max(
            compared, key=lambda one: (one.low_differs, one.significant, one.gap), default=None
        ),
        "chance_tables": [one for one in main if one.rate.key not in said],
        "positive": "positive" if table.positive is None else table.labels[table.positive],
        "one_group": all(tables[0].grouping.known.sum() < 2 for tables in results),
        "selected": _selection_ratios(compared),
        "first": [row for tables in results for row in tables[0].rows],
        "few_statuses": FEW,
        "few_for_a_rate": _few_for_a_rate(results),
        "reach": np.nanmax([0.0, *(one.reach for one in compared)]),
        "overall": [one for one in overall if not one.rate.label and one.overall >= -math.inf],
    }


def _worst_first(results: list[list[RateTable]]) -> list[list[RateTable]]:
    """Return the tables with two judged groups or more, the largest certain gap first.

    Where no gap is certain, the finest grouping is first.
    """

    def certain_gap(tables: list[RateTable]) -> float:
        return max((one.gap * one.low_differs for one in tables if one.significant), default=-1.0)

    compared = [[one for one in tables if one.extremes] for tables in reversed(results)]
    return sorted(filter(None, compared), key=certain_gap, reverse=True)


def _about_same(table: RateTable) -> bool:
    """Return whether accuracies are close, and known well enough to say so."""
    close = table.rate.key == "accuracy" and table.gap < SAME and not table.reach >= SURELY_SAME
    return close and not table.significant


def _few_for_a_rate(results: list[list[RateTable]]) -> dict[str, dict[str, list[str]]]:
    """Return by grouping the groups that are large enough, but not for these rates."""
    few: dict[str, dict[str, list[str]]] = {}
    for first, *others in results:
        groups = few.setdefault(first.grouping.name, {})
        for table in others:
            for row, all_rows in zip(table.rows, first.rows, strict=True):
                if all_rows.judged and row.status in (*FEW, "undefined"):
                    word = "undefined " if row.status == "undefined" else ""
                    groups.setdefault(row.group, []).append(word + table.rate.title.lower())
    return few


def _selection_ratios(tables: list[RateTable]) -> list[tuple[Any, RateTable]]:
    """Return the judged groups with a ratio of selection rates, lowest first, references last."""
    selections = [table for table in tables if table.rate.key == "selection_rate"]
    rows = [(row, table) for table in selections for row in table.judged if row.ratio >= 0]
    return sorted(rows, key=lambda pair: (pair[0].ratio, pair[0].group == pair[1].reference))


def _phrase(row: Any, table: RateTable) -> str:
    """Return a group's name for a sentence; a bare number would read as a count."""
    is_number = row.group.replace(".", "").isdecimal()
    return f"{table.grouping.name} {row.group}" if is_number else str(row.group)


def _phrases(rows: Sequence[Any], table: RateTable) -> list[str]:
    return [_phrase(row, table) for row in rows]
