"""Data sets of math problems on the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..rows import SHAPES, Fields, as_text
from ..sources import DataSet
from .extract import extract_answer

_BARE_BOX = re.compile(r"\\(boxed|fbox) +([^\s${}\\]+)")
_FRAME = re.compile(
    r"^Solve the following math problem step by step\..*?\n\n"
    r'|\n\nRemember to put your answer on its own line after "Answer:"\.?\s*$',
    re.DOTALL,
)


def boxed(value: Any) -> str:
    r"""Return the last box of a worked solution, also of a `\boxed 4` without braces."""
    answer = extract_answer(_BARE_BOX.sub(r"\\\1{\2}", as_text(value)))
    if answer is None:
        raise ValueError("it needs a \\boxed{} answer")
    return answer


def joined(value: Any) -> str:
    """Return the answers of a list with commas between them."""
    if not isinstance(value, list) or not value:
        raise ValueError("it needs a list of answers")
    return ", ".join(map(as_text, value))


def unframed(value: Any) -> str:
    """Return the problem of a chat whose one message asks for the answer in a form of its own."""
    if not isinstance(value, list) or len(value) != 1:
        raise ValueError("it needs a chat of one message")
    return as_text(_FRAME.sub("", as_text(value[0].get("content"))))


_SPLIT = {"train": "train", "test": "test"}
_SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
# Each by its card, https://huggingface.co/datasets/PATH: the fields that it names.
DATA_SETS: Mapping[str, DataSet] = {
    # question, answer (a rationale that ends in #### 42)
    "gsm8k": DataSet("openai/gsm8k", SHAPES, _SPLIT, ("main",)),
    # problem, level, type, solution (with the answer in a box); seven configs
    "math": DataSet("EleutherAI/hendrycks_math", [Fields("problem", "solution", gold=boxed)], _SPLIT, _SUBJECTS),
    # problem, solution, answer, subject, level, unique_id
    "math500": DataSet("HuggingFaceH4/MATH-500", SHAPES, {"test": "test"}),
    # id, problem, solution, answer, url, year
    "aime24": DataSet("HuggingFaceH4/aime_2024", SHAPES, {"test": "train"}),
    # id, problem, answer
    "aime25": DataSet("math-ai/aime25", SHAPES, {"test": "test"}),
    # id, question, answer, url
    "amc23": DataSet("math-ai/amc23", SHAPES, {"test": "test"}),
    # question, answer
    "minerva": DataSet("math-ai/minervamath", SHAPES, {"test": "test"}),
    # id, question, solution, final_answer (a list), context, images, modality, difficulty, unit, answer_type, …
    "olympiadbench": DataSet(
        "Hothan/OlympiadBench",
        [Fields("question", "final_answer", gold=joined)],
        {"test": "train"},
        ("OE_TO_maths_en_COMP",),
    ),
    # data_source, prompt (a chat), ability, reward_model (ground_truth, style), extra_info; 17,917 rows, 100 times
    "dapo-math": DataSet(
        "BytedTsinghua-SIA/DAPO-Math-17k",
        [Fields("prompt", "reward_model.ground_truth", prompt=unframed)],
        {"train": "train"},
        repeats=True,
    ),
    # problem, answer, solution
    "deepscaler": DataSet("agentica-org/DeepScaleR-Preview-Dataset", SHAPES, {"train": "train"}),
}
