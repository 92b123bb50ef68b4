import pytest

from turngym.envs.math.given import Given
from turngym.envs.rows import Fields


def test_nothing_given_asks_for_the_sources_own():
    given = Given()
    assert (given.split, given.holdout, given.fields) == ("train", None, None)
    given.check_gold("anything")


def test_named_fields_are_taken_together():
    assert Given(problem_field="ask", answer_field="reply.text").fields == Fields("ask", "reply.text")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"split": "dev"}, "split is 'dev'; the splits are train, valid, test"),
        ({"holdout": 1.5}, "holdout is 1.5; it is a share"),
        ({"holdout": 0.1, "split": "test"}, "split is 'test' and holdout is 0.1"),
        ({"problem_field": "ask"}, "problem_field is 'ask' and answer_field is None; name both or none"),
        ({"answer_field": "reply"}, "problem_field is None and answer_field is 'reply'"),
        ({"bad_rows": -1}, "bad_rows is -1; it is a number of rows, at least 0"),
        ({"bad_rows": True}, "bad_rows is True"),
    ],
)
def test_what_cannot_be_is_named_with_its_value(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Given(**options)


def test_an_option_that_would_be_ignored_is_refused():
    given = Given(config="main", holdout=0.0)
    given.refuse("it is a file", "holdout", "bad_rows")
    with pytest.raises(ValueError, match="config is 'main', but it is a file; leave it out"):
        given.refuse("it is a file", "holdout", "config")
