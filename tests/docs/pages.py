"""The pages of the documentation, and the code blocks in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = ("settings.md", "commands.md", "api.md")


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", read(page), flags=re.S)


def defined_in(page, name):
    """Return a class or function that one of the blocks of a page defines."""
    (code,) = [
        block
        for block in blocks(page, "python")
        if f"class {name}(" in block or f"def {name}(" in block
    ]
    space: dict[str, object] = {"__name__": "example"}
    exec(compile(code, page, "exec"), space)
    return space[name]
