"""The sections of the page, in order: a function for each question."""

from e2fl.report.sections.clients import clients, gains
from e2fl.report.sections.groups import groups, protected
from e2fl.report.sections.outcome import data, outcome
from e2fl.report.sections.section import Section
from e2fl.report.sections.training import bits, curves, recovery, tradeoff
from e2fl.report.study import Study

QUESTIONS = (
    *(outcome, groups, protected, clients, gains),
    *(curves, tradeoff, bits, recovery, data),
)


def sections(study: Study) -> list[Section]:
    """Return all sections that have something to show for this study."""
    answers = (question(study) for question in QUESTIONS)
    return [section for section in answers if section is not None]
