"""The words of generated stories."""

from ...keyed_random import KeyedRandom

PEOPLE = ("Anna", "Ben", "Cara", "Dan", "Ella", "Finn", "Gina", "Hugo")
THINGS = ("apples", "books", "coins", "cards", "eggs", "pens", "shells", "stamps")
CONTAINERS = ("bags", "boxes", "rows", "jars")


def draw_two_people(rng: KeyedRandom) -> tuple[str, str]:
    """Draw two different persons from `PEOPLE`."""
    first = rng.integer(0, len(PEOPLE) - 1)
    # Steps back from the first person, less than once around; negative indices wrap.
    distance = rng.integer(1, len(PEOPLE) - 1)
    return PEOPLE[first], PEOPLE[first - distance]
