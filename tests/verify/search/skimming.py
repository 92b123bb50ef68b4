"""An agent that searches and skims: it takes a word of what is shown for the answer, and reads nothing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from turngym.envs.qa import SearchEnv
from turngym.tests.verify.rows import Row
from turngym.tools import ToolCall

# Share of the questions that no way of skimming may answer, by the number of facts that they join, and for more.
NEED = {1: 0.6, 2: 0.85}
JOINED = 0.95
TURNS = 3  # searches, each for what the one before showed
_DOC = re.compile(r'^Doc \d+\(Title: "(.*?)"\) (.*)$', re.MULTILINE)
_NAME = re.compile(r"\b(?!(?:He|She|It|The)\b)[A-Z][a-z]+(?: [A-Z][a-z]+)?|\b\d{4}\b")


def skim_rows(env: SearchEnv, tasks: Sequence[int]) -> Iterator[Row]:
    """Count, for each number of facts, the questions that the best of these ways of skimming does not answer."""
    right: dict[int, Counter[str]] = defaultdict(Counter)
    tried = Counter[int]()
    for task in tasks:
        env.reset(options={"task": task})
        if env.task is None:
            raise RuntimeError("reset() has made no task")
        hops = len(getattr(env.task, "queries", ()))
        tried[hops] += 1
        for way, said in skimmed(env, env.task.prompt).items():
            graded = (
                env.grader.grade(completion=f"<answer>{said}</answer>", gold=gold)
                for gold in env.task.golds
            )
            right[hops][way] += max(grade.score for grade in graded) > 0
    for hops in sorted(tried):
        way, most = right[hops].most_common(1)[0]
        what = f"questions of {hops} fact{'s' * (hops > 1)} that no way of skimming answers"
        note = f"{100 * most / tried[hops]:.1f} % answered by {way}"
        yield Row(what, tried[hops] - most, tried[hops], note, NEED.get(hops, JOINED))


def skimmed(env: SearchEnv, question: str) -> dict[str, str]:
    """Search for the question, then for what was named first; return what each way would answer."""
    asked, found = question, dict[str, str]()
    for turn in range(TURNS):
        text, *_ = env.step(env.format.render(ToolCall("search", {"query": asked})))
        for way, said in ways(question, text).items():
            found[f"{way} of search {turn + 1}"] = said
        asked = found[f"the first name of search {turn + 1}"] or question
    return found


def ways(question: str, text: str) -> dict[str, str]:
    """Return what is taken for the answer: titles, and the first, last, most and least frequent name or year."""
    docs = _DOC.findall(text)
    names = [name for _, page in docs for name in _NAME.findall(page) if name not in question]
    first = [name for name in _NAME.findall(docs[0][1] if docs else "") if name not in question]
    years = [name for name in names if name.isdigit()]
    often = Counter(names).most_common()
    said = {f"title {i + 1}": title for i, (title, _) in enumerate(docs)}
    said |= {
        "the first name": names[0] if names else "",
        "the last name": names[-1] if names else "",
    }
    said |= {
        "the first name of page 1": first[0] if first else "",
        "the last of page 1": first[-1] if first else "",
    }
    said |= {
        "the most frequent name": often[0][0] if often else "",
        "the rarest name": often[-1][0] if often else "",
    }
    said["the first year, or else name,"] = (years or names or [""])[0]
    return said
