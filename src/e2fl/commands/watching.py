"""Progress, trackers and the live page of the commands run and compare."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2fl.config.experiment import Experiment
from e2fl.files import write_text
from e2fl.runs.progress import Progress
from e2fl.runs.store import COMMAND, PAGE, Folder
from e2fl.runs.watcher import Watcher, Watchers


class CommandRecord(Watcher):
    """A watcher that stores the command that started a run, so that the run can be repeated."""

    def __init__(self, folder: Path, command: str):
        self.folder, self.command = folder, command

    def begin(self, experiment: Experiment, first: int, last: int) -> None:
        if not (self.folder / COMMAND).exists():
            write_text(self.folder / COMMAND, self.command + "\n")


@contextmanager
def watching(
    out: Path, *, command: str = "", live: bool = False, track: Sequence[str] = ()
) -> Iterator[Watcher]:
    """Yield a watcher for progress, trackers and the live page; the page stops reloading if the run fails."""
    watchers: list[Watcher] = [Progress()]
    if command and not Folder(out).exists():  # a command that resumes a run does not repeat it
        watchers.append(CommandRecord(out, command))
    if track:
        from e2fl.runs.trackers import tracker

        watchers += [tracker(name, out) for name in dict.fromkeys(track)]
    if not live:
        yield Watchers(*watchers)
        return
    from e2fl.report.live import Live

    page = Live(out, out / PAGE)
    print(f"open {out / PAGE} in a browser: it follows the training", file=sys.stderr)
    try:
        yield Watchers(*watchers, page)
    except BaseException:
        page.stop()
        raise
