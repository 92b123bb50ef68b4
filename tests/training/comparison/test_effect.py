"""What a method changed: which step's episodes are others, and what is said of one that changed nothing."""

import json

import pytest

from turngym.training.comparison.effect import EFFECT, Effect, digests, read_effect
from turngym.training.comparison.outcomes import effect_tables
from turngym.training.comparison.results import MethodEffect, _beside, percent

LINE = '{{"turns": [{{"text": "{text}", "tokens": {tokens}, "entropy": [{entropy}]}}]}}\n'


def journal(folder, step, tokens, text="a", entropy=0.5):
    (folder / "trees").mkdir(parents=True, exist_ok=True)
    path = folder / "trees" / f"step-{step:06d}.jsonl"
    path.write_text('{"journal": 3}\n' + LINE.format(text=text, tokens=tokens, entropy=entropy))


def test_a_digest_is_of_tokens_alone(tmp_path):
    for name, tokens, entropy, text in [
        ("one", [1, 2], 0.5, "a"),
        ("same", [1, 2], 0.25, "a"),
        ("other", [1, 3], 0.5, "a"),
        ("quoted", [1, 2], 0.5, r"\"tokens\": [9]"),
    ]:
        journal(tmp_path / name, 1, tokens, text, entropy)
        journal(tmp_path / name, 2, [4], text, entropy)
    found = {name: digests(tmp_path / name) for name in ("one", "same", "other", "quoted")}
    assert found["one"] == found["same"] == found["quoted"]
    assert found["one"][1] != found["other"][1] and found["one"][2] == found["other"][2]
    assert Effect(episodes=found["other"]).differs_from(Effect(episodes=found["one"])) == 1
    assert Effect(episodes=found["same"]).differs_from(Effect(episodes=found["one"])) is None


def test_it_is_written_and_read_again(tmp_path):
    effect = Effect({1: 0.25, 2: 0.5}, {1: "ab"})
    effect.write(tmp_path)
    assert read_effect(tmp_path) == effect
    assert read_effect(tmp_path / "nowhere") == Effect()
    (tmp_path / EFFECT).write_text(json.dumps({"own_term": 3}))
    with pytest.raises(ValueError, match=r"effect\.json is not what a comparison wrote"):
        read_effect(tmp_path)


def beside(*pairs):
    runs = {
        seed: Effect({1: 0.01, 2: 0.03}, dict(enumerate(run, 1)))
        for seed, (run, _) in enumerate(pairs)
    }
    return _beside(
        runs, {seed: Effect({}, dict(enumerate(peer, 1))) for seed, (_, peer) in enumerate(pairs)}
    )


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("abc", "abc"), ("de", "de")], "changed no episode in 3 steps"),
        ([("abc", "abd"), ("de", "de")], "first other episode in step 3, on 1 of 2 seeds"),
        ([("abc", "abd"), ("xe", "de")], "first other episode in step 1 to 3"),
        ([("abc", "xbc")], "first other episode in step 1"),
        ([("abc", "")], ""),  # the reference has not finished the seed
        ([], ""),
    ],
)
def test_what_is_said_of_a_method(pairs, said):
    effect = beside(*pairs)
    assert effect.described() == said and effect.changed_nothing == said.startswith("changed no")
    assert effect.to_json()["said"] == said


def test_a_method_that_changed_nothing_is_told_what_to_do():
    table = effect_tables({"epo": beside(("abc", "abc")), "empg": beside(("abc", "xbc"))}, "grpo")[
        0
    ]
    assert table.rows == [
        ("epo", "1", "3", "changed no episode in 3 steps"),
        ("empg", "1", "3", "first other episode in step 1"),
    ]
    advice = (
        "epo changed no episode in 3 steps, its own term at most 3 % of the gradient: its numbers are those of grpo. "
        "Give it a larger coefficient or more steps, or compare where the control of entropy decides: "
        "--on late-bloomer."
    )
    assert table.note.startswith(f"{advice}\n\nOwn term: ") and "empg changed" not in table.note
    assert effect_tables({"epo": MethodEffect({}, 0, {})}, "grpo") == []
    unmeasured = MethodEffect({0: None}, 3, {})
    assert unmeasured.advice("epo", "grpo").startswith(
        "epo changed no episode in 3 steps: its numbers are those of grpo"
    )
    assert effect_tables({"epo": unmeasured}, "grpo")[0].rows[0][1:3] == ("–", "–")


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100"), (0.997, "100"), (0.123, "12"), (0.0123, "1.2"), (3e-5, "0.003"), (0.0, "0")],
)
def test_a_share_is_written_without_an_exponent(share, text):
    assert percent(share) == text
    assert effect_tables({"epo": MethodEffect({0: 1}, 3, {1: share})}, "grpo")[0].rows[0][1] == text


def test_a_share_too_small_to_write_is_said_to_be_below():
    assert percent(3e-9) == "< 0.001"
