"""The README and the addresses of the distribution, for a package index.

Relative links work in the repository only. They become links to the repository that builds the
distribution, as GitHub's workflows name it. Elsewhere no address is known: the words of a link
stay, and pictures go.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def address() -> str:
    """Return the address of the repository; empty outside of GitHub's workflows."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY")
    return "/".join(os.environ[name] for name in names) if all(map(os.getenv, names)) else ""


def readme_for_index(text: str, home: str, version: str) -> str:
    """Return the README with links to the files of this version, or without relative links."""

    def replaced(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        if not home:
            return "" if picture else words
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({home}/{kind}/v{version}/{path})"

    return LINK.sub(replaced, text)


class IndexMetadata(MetadataHookInterface):
    """Fills in what pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        home = address()
        readme = readme_for_index(text, home, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        paper = {"Paper": "https://arxiv.org/abs/2205.10454"}
        own = {"Repository": home, "Changelog": f"{home}/blob/main/CHANGELOG.md"} if home else {}
        metadata["urls"] = paper | own
