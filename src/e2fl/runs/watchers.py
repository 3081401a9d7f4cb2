"""What the commands run and compare do beside running: watch, track, and leave a page at the end."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2fl.errors import E2flError
from e2fl.runs.folder import Folder
from e2fl.runs.progress import Progress
from e2fl.runs.runner import Run, Watcher, Watchers
from e2fl.terminal import all_tables

PAGE = "report.html"


@contextmanager
def watching(out: Path, *, live: bool, track: Sequence[str]) -> Iterator[Watcher]:
    """Progress, trackers and the live page, as asked for; the page comes to rest if the run does not end well."""
    watchers: list[Watcher] = [Progress()]
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


def finish(runs: Sequence[Run], out: Path, command: str) -> None:
    """Print the table, and write the page and the command that made it."""
    Folder(out).write("command.txt", command + "\n")
    print(all_tables([run.summary for run in runs]))
    print(f"\nwritten to {out}")
    try:
        from e2fl.report import report

        report(runs, out / PAGE)
    except E2flError as error:  # the runs are what matters, and they are on disk
        print(f"no page was written: {error}; then: e2fl report {out}", file=sys.stderr)
    else:
        print(f"open {out / PAGE}")
