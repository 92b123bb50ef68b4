import random
import re

import pytest

from turngym.envs.qa.expert import TRIES, SearchExpert
from turngym.envs.qa.world import HOPS, InventedWorld, parse_question
from turngym.tools import get_format
from turngym.tools.search.bm25 import BM25
from turngym.tools.search.tool import Search

FOUNDER = '<information>\nDoc 1(Title: "Zgor Academy") The Zgor Academy is a small organisation. {}\n</information>'


def play(task, tool, expert, turns=12, astray=lambda said: said):
    """Return what was said in an episode, its answer at the end; nothing but text goes to the expert."""
    text, said = task.prompt, []
    while len(said) < turns:
        said.append(astray(expert.act(text)))
        expert.command = said[-1]
        if said[-1].startswith("<answer>"):
            break
        query = re.fullmatch("<search>(.*)</search>", said[-1])[1]
        text = f"<information>\n{tool.call({'query': query}).text}\n</information>"
    return said


@pytest.fixture(scope="module")
def worlds():
    """A world and what searches it, by size and how many passages are shown."""
    made = {size: InventedWorld(size=size) for size in ("tiny", "small")}
    return {size: (world, BM25(world.passages)) for size, world in made.items()}


@pytest.mark.parametrize("hops", HOPS)
@pytest.mark.parametrize(("size", "k"), [("small", 3), ("tiny", 1)])
def test_it_answers_nearly_all_questions_with_a_search_a_hop(worlds, size, k, hops):
    world, index = worlds[size]
    tasks, tool, expert = world.tasks("valid", hops), Search(index, k), SearchExpert()
    played = [(tasks[i], play(tasks[i], tool, expert)) for i in range(min(len(tasks), 200))]
    right = [said[-1] == f"<answer>{task.gold}</answer>" for task, said in played]
    assert sum(right) >= 0.99 * len(right)
    assert sum(len(said) for _, said in played) <= (hops + 1.1) * len(played)


def test_gold_queries_show_the_gold_passages_and_the_observer_reads_them(worlds):
    world, index = worlds["small"]
    tasks, tool = world.tasks("test"), Search(index, 3)
    right = 0
    for i in range(400):
        expert, task = SearchExpert(), tasks[i]
        expert.act(task.prompt)
        for query in task.queries:
            said = expert.act(tool.call({"query": query}).text)
        right += said == f"<answer>{task.gold}</answer>"
    assert right >= 0.99 * 400


def test_it_finds_its_way_when_somebody_else_decides_now_and_then(worlds):
    world, index = worlds["small"]
    tasks, rng = world.tasks("train"), random.Random(0)
    others = [tasks[i].queries[0] for i in range(50, 60)]

    def astray(said):
        return f"<search>{rng.choice([*others, 'moon'])}</search>" if rng.random() < 0.3 else said

    tool, expert = Search(index, 3), SearchExpert()
    right = [
        play(tasks[i], tool, expert, 40, astray)[-1] == f"<answer>{tasks[i].gold}</answer>"
        for i in range(40)
    ]
    assert sum(right) >= 39


def test_without_passages_it_tries_another_query_and_then_guesses():
    expert = SearchExpert()
    said = [expert.act("Where was the founder of the Zgor Academy born?")]
    said += [
        expert.act("<information>\nNo passage was found.\n</information>") for _ in range(TRIES)
    ]
    assert said == [
        "<search>Zgor Academy founded founder</search>",
        "<search>Zgor Academy founded founder founded founder</search>",
        "<answer>Zgor Academy</answer>",
    ]


def test_its_guess_is_what_the_relation_led_to_from_another_thing():
    expert = SearchExpert()
    expert.act("Where was Bzi Lom born?")
    expert.act('Doc 1(Title: "Bzi Kor") Bzi Kor was a baker. She was born in Mzak.')
    assert expert.act("No passage was found.") == "<answer>Mzak</answer>"


def test_it_goes_on_from_what_it_read_whatever_the_search_was():
    expert = SearchExpert()
    expert.act("Where was the founder of the Zgor Academy born?")
    expert.command = "<search>something else</search>"
    assert (
        expert.act(FOUNDER.format("It was founded in 1604."))
        == "<search>Zgor Academy founded founder</search>"
    )
    assert (
        expert.act(FOUNDER.format("It was founded by Bzi Lom."))
        == "<search>Bzi Lom birthplace born</search>"
    )
    seen = "Bzi Lom was a baker. The birthplace of Bzi Lom was Mzak."
    assert expert.act(seen) == "<answer>Mzak</answer>"


def test_it_reads_a_relation_backwards():
    expert = SearchExpert()
    expert.act("When was the organisation founded by Bzi Lom founded?")
    text = FOUNDER.format("It was founded by Bzi Lom. It has existed since 1604.")
    assert expert.act(text) == "<answer>1604</answer>"


def test_a_question_begins_a_new_episode():
    expert = SearchExpert()
    expert.act("Where was Bzi Lom born?")
    assert expert.act("Bzi Lom was a baker. Bzi Lom was born in Mzak.") == "<answer>Mzak</answer>"
    assert expert.act("Where was Bzi Lom born?") == "<search>Bzi Lom birthplace born</search>"


@pytest.mark.parametrize("name", ["tags", "hermes", "llama-json"])
def test_its_searches_are_calls_of_the_format(name):
    said = SearchExpert(name).act("Where was Bzi Lom born?")
    call = get_format(name).parse(said, ("search",)).call
    assert call is not None and call.arguments == {"query": "Bzi Lom birthplace born"}


def test_a_text_without_a_question():
    assert parse_question("Go on.") is None
    with pytest.raises(
        ValueError, match=r"the first text, 'Go on.', is no question of the world; begin with one"
    ):
        SearchExpert().act("Go on.")
