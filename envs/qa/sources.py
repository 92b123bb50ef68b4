"""Questions of fact by name: a file, or a data set of the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..rows import Fields, as_text, as_texts
from ..sources import DataSet, SourceOptions, load_tasks
from ..tasks import Tasks
from .grade import QAGrader
from .task import QATask

SHAPES = (
    Fields("question", "answers", gold=as_texts),
    Fields("question", "golden_answers", gold=as_texts),
    Fields("question", "answer", gold=as_texts, aliases="answer_aliases"),
)
"""The fields that need no naming; answers are one text or several."""


def entity(value: Any) -> tuple[str, ...]:
    """Return the name of an entity and its aliases, as TriviaQA has them."""
    if not isinstance(value, Mapping):
        raise ValueError("it needs a `value` and `aliases`")
    return as_texts([value.get("value"), *(value.get("aliases") or ())])


def listed(value: Any) -> tuple[str, ...]:
    """Return the texts of a list that is written as JSON, as PopQA has them."""
    try:
        return as_texts(json.loads(as_text(value)))
    except json.JSONDecodeError:
        raise ValueError("it needs a list in JSON") from None


# The validation split of those without a test split of their own is what is reported of them.
_SPLIT = {"train": "train", "test": "validation"}
# Each by its card, https://huggingface.co/datasets/PATH: the fields that it names.
DATA_SETS: Mapping[str, DataSet] = {
    # id, question, answer, type, level, supporting_facts, context; config fullwiki has another context
    "hotpotqa": DataSet("hotpotqa/hotpot_qa", SHAPES, _SPLIT, ("distractor",)),
    # question, answer (a list)
    "nq": DataSet("google-research-datasets/nq_open", SHAPES, _SPLIT),
    # id, question, answer, type, evidences, supporting_facts, context
    "2wiki": DataSet("framolfese/2WikiMultihopQA", SHAPES, _SPLIT),
    # id, question, answer, answer_aliases, answerable, question_decomposition, paragraphs
    "musique": DataSet("dgslibisey/MuSiQue", SHAPES, _SPLIT),
    # Question, Answer
    "bamboogle": DataSet("chiayewken/bamboogle", [Fields("Question", "Answer", gold=as_texts)], {"test": "test"}),
    # question, question_id, question_source, answer (value, aliases, type, …); the answers of its test are withheld
    "triviaqa": DataSet(
        "mandarjoshi/trivia_qa", [Fields("question", "answer", gold=entity)], _SPLIT, ("unfiltered.nocontext",)
    ),
    # question, possible_answers (a list as JSON), subj, prop, obj, …
    "popqa": DataSet("akariasai/PopQA", [Fields("question", "possible_answers", gold=listed)], {"test": "test"}),
    # id, question, golden_answers, data_source, prompt, ability, reward_model, …: NQ and HotpotQA
    "search-r1": DataSet("PeterJinGo/nq_hotpotqa_train", SHAPES, {"train": "train", "test": "test"}),
    # id, question, golden_answers, metadata; a config for each of nq, triviaqa, popqa, hotpotqa, 2wikimultihopqa, …
    "flashrag": DataSet("RUC-NLPIR/FlashRAG_datasets", SHAPES),
}


def load(source: str | Path, options: SourceOptions) -> Tasks:
    """Return the tasks that `source` names, all `QATask`.

    Args:
        source: In this order: a file that exists; a name of `DATA_SETS`; `owner/name` on the hub. Rows of a file may
            hold `gold_passages` or `passages`, the ids of the gold passages, and `queries`, which find them.
        options: Further options; one that the source would ignore is refused.

    Raises:
        FileNotFoundError: It is the name of a file, and there is none.
        ValueError: There is no such source, or it cannot be read; the message says what there is.
    """
    return load_tasks(source, replace(options, check_gold=QAGrader.check_gold, shapes=SHAPES, make=_task), DATA_SETS)


def _task(name: str, prompt: str, golds: tuple[str, ...], row: Mapping[str, Any]) -> QATask:
    passages = _texts(row, "gold_passages") or _texts(row, "passages")
    return QATask(name, prompt, golds[0], aliases=golds[1:], passages=passages, queries=_texts(row, "queries"))


def _texts(row: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """Return the texts of a field that may be absent or empty."""
    try:
        return as_texts(value) if (value := row.get(field)) else ()
    except ValueError:
        raise ValueError(f": field {field!r} is {value!r}; it needs a list of texts") from None
