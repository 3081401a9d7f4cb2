"""Strings for LaTeX."""

TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def tex(text: str) -> str:
    """Return the string with every special character escaped, on one line."""
    return "".join(TEX.get(letter, letter) for letter in one_line(text))


def one_line(text: str) -> str:
    """Return the string without line breaks: a name must not end a comment or a row of LaTeX."""
    return " ".join(text.split())
