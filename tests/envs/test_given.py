import pytest

from turngym.envs.given import Given
from turngym.envs.rows import Fields, as_texts
from turngym.envs.tasks import plain_task


def test_nothing_given_asks_for_the_sources_own():
    given = Given()
    assert (given.split, given.holdout, given.fields) == ("train", None, None)
    given.check_gold("anything")
    assert given.make is plain_task


def test_named_fields_are_taken_together():
    assert Given(problem_field="ask", answer_field="reply.text").fields == Fields("ask", "reply.text")


def test_named_fields_are_read_as_the_first_of_the_known_ones():
    shapes = (Fields("question", "answers", gold=as_texts), Fields("question", "answer"))
    fields = Given(problem_field="ask", answer_field="reply", shapes=shapes).fields
    assert fields == Fields("ask", "reply", gold=as_texts)
    assert Given(shapes=shapes).fields is None


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
