"""LESS and AEPO of Wang et al. beside their sheets, and shared passages written by hand."""

from dataclasses import replace
from itertools import chain

import pytest
import torch

from turngym.tests.support.toy import build, f64
from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods import METHODS
from turngym.training.methods.advantage.less import TOKEN
from turngym.training.methods.entropy.aepo_wang import share, tempered

LOW = [0.1, 0.05, 0.2, 0.3, 1.5, 0.1, 0.02, 0.15, 0.25, 2.0]


def factors(tokens, entropies, scores, **parameters):
    batch = build([[len(own)] for own in tokens], entropy=[*chain(*entropies)], scores=scores)
    batch = replace(batch, extras={TOKEN: f64([*chain(*tokens)])})
    ones = torch.ones(batch.n_slots).double()
    return (
        METHODS["less"](**parameters)
        .shape(start_terms(ones), batch, Now.at_start(batch), {})
        .advantage.tolist()
    )


def test_the_sheets_example_has_runs_too_short_to_be_shared() -> None:
    other = [[20 + at for at in range(10)], list(range(10))]
    found = factors([list(range(10)), *other], [LOW] * 3, [1.0, 1.0, 0.0])
    assert found[:10] == [0.5] * 9 + [1.0] and found[20:] == [1.0] * 10


def test_a_passage_of_both_sides_is_silent_and_one_of_a_side_counts_by_its_share() -> None:
    entropy = [0.1] * 5 + [2.0, 2.0]
    same, own, long = [1, 2, 3, 4, 5, 8, 9], [11, 12, 13, 14, 15, 8, 9], [0.1] * 6 + [2.0, 2.0]
    tokens = [same, own, [7, *own], [same[0], *same[1:]], [31, 32, 33, 34, 35, 8, 9]]
    found = factors(tokens, [entropy, entropy, long, entropy, entropy], [1.0, 1.0, 1.0, 0.0, 0.0])
    base = 1 / 3  # of certain tokens of a right path, also of those at the threshold itself
    assert found[:7] == pytest.approx([0.0] * 5 + [base] * 2)  # shared by a right and a wrong path
    assert found[7:14] == pytest.approx([2 / 3] * 5 + [base] * 2)  # two of three right ones
    assert found[14:22] == pytest.approx(
        [base] + [2 / 3] * 5 + [base] * 2
    )  # its own first token is not shared
    assert found[22:29] == pytest.approx([0.0] * 5 + [0.5] * 2) and found[29:] == pytest.approx(
        [0.5] * 7
    )


def test_ids_match_as_numbers_and_not_as_digits() -> None:
    found = factors(
        [[11, 2, 3, 4, 5], [1, 2, 3, 4, 55]], [[0.1, 0.1, 0.1, 0.1, 2.0]] * 2, [1.0, 0.0], least=4
    )
    assert found == [1.0] * 10


def test_sheet_e_shares_and_advantages() -> None:
    assert [
        share(*own) for own in ((0.3, 0.5, 0.5), (0.45, 0.5, 0.25), (0.9, 0.5, 0.5))
    ] == pytest.approx([1 / 6] * 3)
    assert share(0.3, 0.5, 0.0) == 0.0
    logits, token = torch.tensor([[2.0, 1.0, 0.0]] * 3, dtype=torch.float64), torch.arange(3)
    factor = tempered(1.2, 0.8, logits, token, None)
    assert factor[:, 0].exp().tolist() == pytest.approx([0.925925, 1.093851, 1.292232], abs=1e-6)
    batch = build([[3], [1]], scores=[1.0, 0.0])
    batch = replace(batch, extras={"aepo-wang": torch.cat([factor, torch.zeros(1, 2).double()])})
    terms = start_terms(f64([0.9, 0.9, 0.9, -0.9]))
    shaped = METHODS["aepo-wang"]().shape(terms, batch, Now.at_start(batch), {"entropy": 0.3})
    assert shaped.advantage.tolist() == pytest.approx(
        [0.904321, 0.932308, 0.965372, -0.75], abs=1e-6
    )
