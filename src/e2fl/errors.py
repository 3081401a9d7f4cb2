"""The errors a user can cause and mend; each message says what to do."""


class E2flError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(E2flError):
    """A configuration that names something unknown or impossible."""


class DataError(E2flError):
    """Data that is missing, damaged, or not what was promised."""


class WireError(E2flError):
    """Bytes that are not a valid message for this model."""


class RunError(E2flError):
    """A run that cannot start, continue, or be read."""


class ReportError(E2flError):
    """A report that cannot be made: something optional is not installed, or there is nothing to show."""
