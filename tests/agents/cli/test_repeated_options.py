"""Options that stand several times on a command line."""

import shlex

import pytest

from turngym.agents.cli.repeated_options import join_repeated


@pytest.mark.parametrize(
    ("line", "joined"),
    [
        ("train --option a=1 --steps 3 --option b=2", "train --option a=1 b=2 --steps 3"),
        ("train --option=a=1 --option b=2 c=3", "train --option a=1 b=2 c=3"),
        ("eval ID --server http://a --server http://b", "eval ID --server http://a http://b"),
        ("train --server_option a --server-option b", "train --server-option a b"),
        ("train recipe --option a=1 b=2 --lr -1", "train recipe --option a=1 b=2 --lr -1"),
        ("view run --allow-host a --allow-host b", "view run --allow-host a --allow-host b"),
        ("train --quiet --quiet", "train --quiet --quiet"),
        ("compare grpo epo", "compare grpo epo"),
        ("", ""),
        ("--help", "--help"),
    ],
)
def test_lists_are_joined_and_the_rest_stays(line, joined):
    assert join_repeated(shlex.split(line)) == shlex.split(joined)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train --steps 3 --steps 4", "--steps is given twice, as '3' and as '4'; give it once"),
        (
            "train --method grpo --method=epo",
            "--method is given twice, as 'grpo' and as 'epo'; give it once",
        ),
        (
            "train --eval-every 3 --eval_every 3",
            "--eval-every is given twice, as '3' and as '3'; give it once",
        ),
        (
            "train --difficulty 1 --difficulty 2 3",
            "--difficulty is given twice, as '1' and as '2 3'; give it once",
        ),
    ],
)
def test_what_has_one_value_is_refused(line, message):
    with pytest.raises(ValueError) as caught:
        join_repeated(shlex.split(line))
    assert str(caught.value) == message
