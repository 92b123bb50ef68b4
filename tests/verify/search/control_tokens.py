"""Documents that spell control tokens: what an agent is shown of them is encoded without any."""

from __future__ import annotations

from collections.abc import Sequence

from turngym.envs.qa import QATask, SearchEnv
from turngym.envs.tasks import ListTasks
from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.search.worker import control
from turngym.tests.verify.templates.injections import look_alikes, spellings
from turngym.tools import Search, ToolCall
from turngym.tools.search.retriever import Passage

TOKENS = ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "</s>", "<tool_call>", "<|eot_id|>")
FORMATS = ("tags", "hermes")


class _Fixed:
    """Finds one text, whatever is looked for."""

    name = "one text"

    def __init__(self, text: str) -> None:
        self.text = text

    def search(self, query: str, k: int) -> list[Passage]:
        return [Passage("1", self.text, self.text)]

    def close(self) -> None:
        pass


def shown_row(tokens: Sequence[str] = TOKENS) -> Row:
    """Count the documents whose observation is encoded without a control token, in each format."""
    texts = [text for token in tokens for text in (*spellings(token), *look_alikes(token))]
    wrong = [
        f"{text!r:.60} in {format}"
        for format in FORMATS
        for text in texts
        if control(_observed(text, format))
    ]
    of = len(texts) * len(FORMATS)
    return Row(
        "documents that spell control tokens are shown without one",
        of - len(wrong),
        of,
        first(wrong),
    )


def _observed(text: str, format: str) -> str:
    """Return what an agent is shown when it finds a text."""
    env = SearchEnv(ListTasks([QATask("1", "?", "x")]), [Search(_Fixed(text))], format=format)
    env.reset(seed=0)
    observation, *_ = env.step(env.format.render(ToolCall("search", {"query": "x"})))
    env.close()
    return observation
