import numpy as np
import pytest

from turngym.agents.engine import Continued, Sampling, keyed_rng


def test_keys_separate_draws_and_nothing_else_does():
    assert (
        keyed_rng((1, 2, 3)).random(4).tolist() == keyed_rng((np.int64(1), 2, 3)).random(4).tolist()
    )
    assert (
        len(
            {
                keyed_rng(key).random()
                for key in [(1, 2, 3), (1, 23), (12, 3), (3, 2, 1), (-1, 2, 3)]
            }
        )
        == 5
    )


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_k": -1},
        {"max_tokens": 0},
    ],
)
def test_a_sampling_value_out_of_range_is_named(values):
    with pytest.raises(ValueError, match=f"^{next(iter(values))} is "):
        Sampling(**values)


class Tagged:
    closers = ("</b>", "}")

    def complete(self, text: str) -> bool:
        return text.startswith("<b>") and text.endswith(self.closers)


def test_a_turn_whose_first_words_are_given_is_complete_where_it_would_be_had_it_drawn_them():
    cut, text = Tagged(), "<b>say it</b>"
    for split in range(len(text)):
        continued = Continued(cut, text[:split])
        assert continued.closers == cut.closers and continued.complete(text[split:])
        assert not continued.complete(text[split:-1])
    assert not Continued(cut, "no ").complete(text)
    assert Continued(Continued(cut, "<b>"), "say ").complete("it</b>")
