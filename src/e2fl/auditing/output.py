"""Writing of an audit's files: complete or not at all, and never over an input."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from e2fl.errors import DataError, ReportError
from e2fl.files import replacing

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "brave-browser",
)


def require_free(targets: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Raise `DataError` if a file to be written is an input, or is to be written twice."""
    for place, target in enumerate(targets):
        for source in inputs:
            if _same_file(target, source):
                raise DataError(f"{target} is the table itself; choose another file to write to")
        for other in targets[:place]:
            if _same_file(target, other):
                raise DataError(f"{target} is named twice; choose different files")
        if target.is_dir():
            raise DataError(f"{target} is a folder; name a file to write to")


def _same_file(one: Path, other: Path) -> bool:
    """Return whether two paths name one file, through links too."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return one.absolute() == other.absolute()


def write(path: Path, content: str | bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as partial:
        partial.write_bytes(content.encode("utf-8", "replace") if isinstance(content, str) else content)


def write_pdf(page: str, path: Path, browser: str | None = None) -> None:
    """Print the page with a browser that is installed."""
    command = browser or next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if command is None:
        raise ReportError("--pdf needs Chromium, Chrome or Edge; install one, or open the page and print it to PDF")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        options = ["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
        options += ["--disable-component-update", f"--user-data-dir={folder}/profile", "--no-pdf-header-footer"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--no-sandbox")  # browsers refuse to start as root otherwise; the page has no foreign code
        try:
            subprocess.run(
                [command, *options, f"--print-to-pdf={target}", source.as_uri()],
                check=True,
                capture_output=True,
                timeout=300,
            )
            content = target.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise ReportError(f"{Path(command).name} could not print the page; open it and print it to PDF") from error
    write(path, content)
