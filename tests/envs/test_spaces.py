import copy
import json
import multiprocessing
import pickle

import gymnasium
import pytest
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.envs.spaces import TextSpace

TEXT = st.text(max_size=12)  # hypothesis draws no lone surrogates for st.text by default


def shared(space, n):
    return create_shared_memory(space, n=n, ctx=multiprocessing.get_context("fork"))


@pytest.mark.parametrize(
    "text", ["", "plain", "naïve", "两个苹果", "🍎", "\0\n\t\r", "\ue000", "a" * 65_536]
)
def test_any_text_that_fits_is_in_the_space(text):
    assert text in TextSpace()


@pytest.mark.parametrize("value", ["a" * 65_537, "é" * 32_769, "\ud800", b"bytes", None, 3, ["a"]])
def test_what_is_too_long_or_no_text_is_not(value):
    assert value not in TextSpace()


def test_the_limit_counts_bytes():
    assert "🍎" in TextSpace(4) and "🍎" not in TextSpace(3)


def test_a_limit_below_one_byte_is_refused():
    with pytest.raises(ValueError, match="max_bytes is 0; a text space needs at least 1 byte"):
        TextSpace(0)


@pytest.mark.parametrize("limit", [1, 2, 5, 65_536])
def test_samples_are_in_the_space_and_fixed_by_the_seed(limit):
    one, two = TextSpace(limit, seed=3), TextSpace(limit)
    two.seed(3)
    drawn = [one.sample() for _ in range(50)]
    assert drawn == [two.sample() for _ in range(50)]
    assert all(text in one for text in drawn)
    assert limit < 5 or (len(set(drawn)) > 10 and any(not text.isascii() for text in drawn))


def test_masks_are_refused():
    with pytest.raises(ValueError, match="no mask or probability"):
        TextSpace().sample(mask="a")
    with pytest.raises(ValueError, match="no mask or probability"):
        TextSpace().sample(probability=0.5)


def test_a_space_equals_its_copies_and_no_other():
    space = TextSpace(7)
    for twin in (copy.deepcopy(space), pickle.loads(pickle.dumps(space)), eval(repr(space))):  # noqa: S301, S307
        assert twin == space and hash(twin) == hash(space)
    assert space != TextSpace(8) and space != gymnasium.spaces.Text(7)
    assert not space.is_np_flattenable


def test_texts_survive_json():
    space = TextSpace()
    texts = [space.sample() for _ in range(5)]
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(texts)))) == texts


def test_batches_are_tuples_of_texts():
    batch = batch_space(TextSpace(9), 3)
    assert (
        batch
        == batch_differing_spaces([TextSpace(9)] * 3)
        == gymnasium.spaces.Tuple([TextSpace(9)] * 3)
    )
    assert list(iterate(batch, ("a", "b", "c"))) == ["a", "b", "c"]
    assert concatenate(TextSpace(9), ("a", "b", "c"), create_empty_array(TextSpace(9), n=3)) == (
        "a",
        "b",
        "c",
    )


@given(texts=st.lists(TEXT, min_size=1, max_size=4), again=TEXT)
@settings(max_examples=50, deadline=None)
def test_shared_memory_carries_any_text_and_is_read_live(texts, again):
    space = TextSpace(48)
    memory = shared(space, len(texts))
    live = read_from_shared_memory(space, memory, n=len(texts))
    assert copy.deepcopy(live) == ("",) * len(texts)
    for index, text in enumerate(texts):
        write_to_shared_memory(space, index, text, memory)
    copied = copy.deepcopy(live)
    assert copied == tuple(texts) and isinstance(copied, tuple)
    write_to_shared_memory(space, len(texts) - 1, again, memory)
    assert (list(live), len(live), live[-1], live[:1]) == (
        [*texts[:-1], again],
        len(texts),
        again,
        tuple(live)[:1],
    )
    assert copied == tuple(texts)


def test_a_text_that_does_not_fit_in_shared_memory_is_refused_and_harms_no_neighbour():
    space = TextSpace(4)
    memory = shared(space, 2)
    write_to_shared_memory(space, 1, "next", memory)
    with pytest.raises(
        ValueError, match=r"an observation of 5 bytes does not fit in TextSpace\(max_bytes=4\)"
    ):
        write_to_shared_memory(space, 0, "éée", memory)
    assert copy.deepcopy(read_from_shared_memory(space, memory, n=2)) == ("", "next")


def test_shared_memory_works_inside_other_spaces():
    space = gymnasium.spaces.Dict({"text": TextSpace(8), "n": gymnasium.spaces.Discrete(5)})
    memory = shared(space, 2)
    live = read_from_shared_memory(space, memory, n=2)
    for index, value in enumerate([{"text": "ab", "n": 3}, {"text": "ö", "n": 4}]):
        write_to_shared_memory(space, index, value, memory)
    seen = copy.deepcopy(live)
    assert seen["text"] == ("ab", "ö") and seen["n"].tolist() == [3, 4]
