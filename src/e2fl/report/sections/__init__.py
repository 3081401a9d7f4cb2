"""The sections of the page, in order: a function for each question."""

from functools import lru_cache

from e2fl.report.sections.clients import clients, gains
from e2fl.report.sections.groups import attacks, groups, influence, protected
from e2fl.report.sections.outcome import data, outcome
from e2fl.report.sections.section import Section
from e2fl.report.sections.training import curves, recovery
from e2fl.report.study import Study

QUESTIONS = (
    *(outcome, groups, protected, attacks, clients, gains),
    *(curves, recovery, influence, data),
)


@lru_cache(maxsize=1)
def sections(study: Study) -> list[Section]:
    """Return all sections that have something to show for this study; page and files share them."""
    answers = (question(study) for question in QUESTIONS)
    return [section for section in answers if section is not None]
