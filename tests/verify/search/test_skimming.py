"""Skimming, in worlds whose pages give the answer away, and in one whose pages do not."""

import pytest

from turngym.envs.qa import SearchEnv, make_search
from turngym.envs.qa.env import QATask
from turngym.envs.tasks import ListTasks
from turngym.tests.verify.search import skimming
from turngym.tools import Search
from turngym.tools.search.bm25 import BM25
from turngym.tools.search.retriever import Passage


def test_questions_of_many_facts_cannot_be_skimmed():
    env = make_search(split="test", size="tiny")
    rows = list(skimming.skim_rows(env, range(40)))
    assert [row.of for row in rows] == [10] * 4 and all(row.good for row in rows[2:])


@pytest.mark.parametrize(
    ("page", "way"),
    [
        ("Zog is where the mayor of the home of Ann was born.", "the first name of search 1"),
        (
            "the mayor of the home of Ann is Bo Ka and she was born in Zog",
            "the last name of search 1",
        ),
        (
            "the mayor of the home of Ann, Bo, was born in Zog; Bo likes Bo.",
            "the rarest name of search 1",
        ),
    ],
)
def test_a_page_that_answers_a_joined_question_is_found(page, way):
    asked = "Where was the mayor of the home of Ann born?"
    env = SearchEnv(
        ListTasks([QATask("t", asked, "Zog", queries=("a", "b"))]),
        [Search(BM25([Passage("1", "x", page)]))],
    )
    row = next(skimming.skim_rows(env, [0]))
    assert not row.good and row.what.startswith("questions of 2 facts")
    env.reset()
    assert skimming.skimmed(env, asked)[way] == "Zog"
