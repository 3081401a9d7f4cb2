"""An extension of griffe: lines "name: meaning" of a docstring become a list on the site."""

import re
from typing import Any

from griffe import Class, Extension, Function, Object


class Arguments(Extension):
    """Arguments of functions and fields of classes, as lists."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        _list(func, {parameter.name.lstrip("*") for parameter in func.parameters})

    def on_class(self, *, cls: Class, **_: Any) -> None:
        _list(cls, set(cls.members))


def _list(thing: Object, names: set[str]) -> None:
    if thing.docstring is None:
        return
    lines: list[str] = []
    inside = False
    for line in thing.docstring.value.splitlines():
        match = re.match(r"(\w+(?:, \w+)*): ", line)
        if match and names.issuperset(match[1].split(", ")):
            lines += [] if inside else [""]
            lines.append(f"- `{match[1]}`: {line[match.end() :]}")
            inside = True
        else:
            lines.append(f"  {line}" if inside and line else line)
            inside = inside and bool(line)
    thing.docstring.value = "\n".join(lines)
