"""The table of methods in docs/field.md, made of their cards: `python -m turngym.tests.support.field` writes it."""

from pathlib import Path

from turngym.training.methods import METHODS, Method, evidence, title

PAGE = Path(__file__).parents[2] / "docs/field.md"
START, END = "<!-- made of the cards -->\n", "<!-- end -->\n"


def table() -> str:
    """Return a row for each method: what it is, what it turns, what it alone may set, and its grade."""
    lines = ["| method | what it is | turns | sets | grade |", "|---|---|---|---|---|"]
    for name, row in METHODS.items():
        assert isinstance(row, Method)
        knob, grade = evidence(name)
        sets = ", ".join(row.sets) or "-"
        lines.append(f"| `{name}` | {title(name).rstrip('.')} | {knob} | {sets} | {grade or '-'} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page's text with the table of now."""
    before, rest = text.split(START)
    return before + START + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
