"""The sections of the page, in order: one module for each question."""

from e2fl.report.section import Section
from e2fl.report.sections import (
    bits,
    clients,
    curves,
    data,
    gains,
    groups,
    outcome,
    protected,
    recovery,
    tradeoff,
)
from e2fl.report.study import Study
from e2fl.report.theme import Theme

MODULES = (outcome, groups, protected, clients, gains, curves, tradeoff, bits, recovery, data)


def sections(study: Study, theme: Theme) -> list[Section]:
    """Return all sections that have something to show for this study."""
    found = (module.section(study, theme) for module in MODULES)
    return [section for section in found if section is not None]
