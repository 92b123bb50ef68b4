import os
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from turngym.envs.qa.facts import RELATIONS
from turngym.envs.qa.grader import normalise_text
from turngym.envs.qa.world import HOPS, InventedWorld, parse_question, read_facts
from turngym.envs.splits import SPLITS

DIGEST = "568308770bc8ab5dfae31f8178b2b49fbd3cce8e9b8ea2557c90722c1b645662"
CODE = """
import hashlib
from turngym.envs.qa.world import InventedWorld

world = InventedWorld(1, "tiny")
tasks = [tasks[i] for tasks in map(world.tasks, ("train", "valid", "test")) for i in range(50)]
lines = [repr((p.id, p.title, p.text)) for p in world.passages]
lines += [repr((t.id, t.prompt, t.gold, t.passages, t.queries)) for t in tasks]
print(hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


@pytest.mark.slow
def test_the_world_is_the_same_in_every_process_and_on_every_machine():
    digests = [
        subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert digests == [DIGEST] * 2


def test_arguments_choose_the_world(tiny):
    assert (tiny.name, tiny.size, tiny.seed) == ("world-tiny-0", "tiny", 0)
    assert InventedWorld().name == "world-small-0"
    assert tiny.passages != InventedWorld(1, "tiny").passages


def test_unknown_sizes_are_named():
    with pytest.raises(ValueError, match="unknown size 'smal' of a world; did you mean 'small'"):
        InventedWorld(size="smal")
    with pytest.raises(
        ValueError, match="unknown size 'zzz' of a world; the sizes are tiny, small, medium, large"
    ):
        InventedWorld(size="zzz")


def test_passages_are_written_once(tiny):
    assert tiny.passages is tiny.passages
    assert len(tiny.passages) == 1000


def inside(words, text):
    return f" {normalise_text(words)} " in f" {normalise_text(text)} "


@pytest.fixture(scope="module")
def questions(small):
    """Hundreds of tasks of every split and number of hops."""
    tasks = [small.tasks(split, hops) for split in SPLITS for hops in HOPS]
    return [
        (each.split, each.hops[0], each[i]) for each in tasks for i in range(min(len(each), 150))
    ]


def answers(facts, question):
    """All that a question can mean: sets of things, from one relation to the next, over what the passages state."""
    forward, backward = defaultdict(set), defaultdict(set)
    for relation, subject, target in facts:
        forward[relation, subject].add(target)
        backward[relation, target].add(subject)
    for start, path in question:
        met = [{start}]
        for name in path:
            inverse = RELATIONS[name].inverse
            known, relation = (backward, inverse) if inverse else (forward, name)
            met.append({thing for one in met[-1] for thing in known[relation, one]})
        yield met


def test_every_question_has_one_answer_and_it_is_the_gold(small, questions):
    facts = list(read_facts("\n".join(passage.text for passage in small.passages)))
    parsed = [parse_question(task.prompt) for _, _, task in questions]
    ways = answers(facts, [(question.start, question.path) for question in parsed])
    for (_, hops, task), question, met in zip(questions, parsed, ways, strict=True):
        assert len(question.path) == hops == len(met) - 1
        assert all(len(things) == 1 for things in met), task.prompt
        assert met[-1] == {task.gold}
        assert len(set.union(*met)) == hops + 1  # nothing is met twice


def test_the_gold_passages_state_what_each_hop_needs(small, questions):
    texts = {passage.id: passage.text for passage in small.passages}
    for _, hops, task in questions:
        assert len(task.passages) == len(task.queries) == hops
        question = parse_question(task.prompt)
        name = question.start
        for relation, passage, query in zip(
            question.path, task.passages, task.queries, strict=True
        ):
            assert query == f"{name} {RELATIONS[relation].search_words}"
            inverse = RELATIONS[relation].inverse
            told = [fact for fact in read_facts(texts[passage]) if fact[0] == (inverse or relation)]
            assert len(told) == 1
            assert told[0][2 if inverse else 1] == name
            name = told[0][1 if inverse else 2]
        assert name == task.gold


def test_the_gold_is_in_no_question_no_query_and_no_id(questions):
    for _, _, task in questions:
        assert not inside(task.gold, task.prompt)
        assert not any(inside(task.gold, query) for query in task.queries)
        assert not inside(task.gold, task.id.replace("-", " "))
        assert task.gold not in repr(task)


def test_splits_share_no_question_and_no_last_fact(small):
    last, texts = {}, {}
    for split in SPLITS:
        every = small.tasks(split)
        tasks = [every[i] for i in range(1000)]
        texts[split] = {task.prompt for task in tasks}
        ends = set()
        for task in tasks:
            question, year = parse_question(task.prompt), task.gold.isdecimal()
            subject = task.queries[-1].removesuffix(f" {RELATIONS[question.path[-1]].search_words}")
            ends.add((question.path[-1], subject) if year else frozenset((subject, task.gold)))
        last[split] = ends
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert texts[one].isdisjoint(texts[other])
        assert last[one].isdisjoint(last[other])


@pytest.mark.slow
def test_guesses_without_a_search_are_wrong(small):
    """The answer that train gives most often, by relation; and any one answer to everything."""
    for hops in HOPS:
        train, usual = small.tasks("train", hops), defaultdict(Counter)
        for i in range(800):
            usual[parse_question(train[i].prompt).path[-1]][train[i].gold] += 1
        guess = {relation: counts.most_common(1)[0][0] for relation, counts in usual.items()}
        held = [
            tasks[i]
            for tasks in (small.tasks("valid", hops), small.tasks("test", hops))
            for i in range(len(tasks))
        ]
        assert len(held) >= 1500
        assert sum(
            guess[parse_question(task.prompt).path[-1]] == task.gold for task in held
        ) <= 0.02 * len(held)
        assert Counter(task.gold for task in held).most_common(1)[0][1] <= 0.02 * len(held)


def test_a_task_depends_on_the_world_and_its_own_number_alone():
    tasks, again = InventedWorld(3, "tiny").tasks("valid"), InventedWorld(3, "tiny").tasks("valid")
    ahead = [tasks[i] for i in (9, 3, 3)]
    assert ahead == [again[i] for i in (9, 3, 3)]
    one = InventedWorld(3, "tiny").tasks("valid", 2)
    assert [one[number] for number in range(5)] == [tasks[4 * number + 1] for number in range(5)]
    assert InventedWorld(4, "tiny").tasks("valid")[0].prompt != tasks[0].prompt


def test_hops_are_mixed_evenly(small):
    mixed = small.tasks("test", (3, 1, 3))
    assert mixed.hops == (1, 3)
    assert [len(parse_question(mixed[i].prompt).path) for i in range(6)] == [1, 3, 1, 3, 1, 3]


def test_hardly_any_question_comes_twice(small, tiny):
    for world, least in ((small, 0.97), (tiny, 0.8)):
        for hops in HOPS:
            tasks = world.tasks("valid", hops)
            assert len({tasks[i].prompt for i in range(len(tasks))}) >= (
                1.0 if hops == 1 else least
            ) * len(tasks)


def test_questions_of_a_tiny_world_are_short(tiny):
    tasks = tiny.tasks("train", 1)
    assert max(len(tasks[i].prompt.split()) for i in range(len(tasks))) <= 9
    assert len({parse_question(tasks[i].prompt).path for i in range(200)}) == 6


def test_there_are_thousands_of_tasks(small, tiny):
    assert {
        split: len(small.tasks(split)) >= least
        for split, least in (("train", 20_000), ("valid", 3000))
    } == {
        "train": True,
        "valid": True,
    }
    assert len(tiny.tasks("train", 1)) >= 1500 and len(tiny.tasks("test", 1)) >= 150
    assert small.tasks("valid", 1).name == "world-small-0"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"hops": 0}, "hops is 0; choose one or several of 1, 2, 3, 4"),
        ({"hops": (1, 5)}, r"hops is \(1, 5\)"),
        ({"hops": ()}, r"hops is \(\)"),
        ({"split": "dev"}, "split is 'dev'; the splits are train, valid, test"),
    ],
)
def test_bad_arguments_are_named(tiny, arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        tiny.tasks(**arguments)


def test_indices_out_of_range_are_refused(tiny):
    tasks = tiny.tasks("test", 1)
    for i in (-1, len(tasks)):
        with pytest.raises(
            IndexError, match=f"task {i} of world-tiny-0: there are tasks 0 to {len(tasks) - 1}"
        ):
            tasks[i]
