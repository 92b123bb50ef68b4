"""Options that stand several times on a command line: lists are joined, and what has one value is refused.

A parser of options takes the last one, so that `--option max_turns=3 --option format=tags` would lose `max_turns`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

JOINED = (
    "--option",
    "--request",
    "--server",
    "--server-option",
)  # lists of what may be named one by one
APPENDED = ("--allow-host",)  # the parser joins these itself


@dataclass(frozen=True)
class GivenOption:
    """An option and the values behind it, as they stand on the command line; of the words before all, no name."""

    name: str
    words: tuple[str, ...]
    values: tuple[str, ...]


def join_repeated(args: Sequence[str]) -> list[str]:
    """Return a command line with the same meaning on which no option stands twice.

    Raises:
        ValueError: An option that has one value is given twice.
    """
    given = list(_given(args))
    joined: list[str] = []
    written: set[str] = set()
    for option in given:
        same = [other for other in given if other.name == option.name]
        values = [value for other in same for value in other.values]
        if not option.name or len(same) == 1 or option.name in APPENDED or not values:
            joined += option.words
        elif option.name not in JOINED:
            first, second = (" ".join(other.values) for other in same[:2])
            raise ValueError(
                f"{option.name} is given twice, as {first!r} and as {second!r}; give it once"
            )
        elif option.name not in written:
            written.add(option.name)
            joined += [option.name, *values]
    return joined


def _given(args: Sequence[str]) -> Iterator[GivenOption]:
    """Yield the words before the first option, and then each option with what stands behind it."""
    starts = [place for place, word in enumerate(args) if word.startswith("--") and len(word) > 2]
    yield GivenOption("", tuple(args[: starts[0] if starts else len(args)]), ())
    for start, end in pairwise([*starts, len(args)]):
        name, equals, value = args[start].partition("=")
        values = ((value,) if equals else ()) + tuple(args[start + 1 : end])
        yield GivenOption(name.replace("_", "-"), tuple(args[start:end]), values)
