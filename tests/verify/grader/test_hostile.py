from turngym.tests.verify.grader.hostile import GOLDS, hostile


def test_hostile_completions_are_many_drawn_and_repeatable():
    made = list(hostile(0))
    assert made == list(hostile(0)) != list(hostile(1))
    assert len(made) == 50 and len(set(made)) == 50
    assert {gold for gold, _ in made} == set(GOLDS)
    assert all("{a}" not in text and r"\boxed{" in text for _, text in made)
    assert max(len(text) for _, text in made) > 10**6
