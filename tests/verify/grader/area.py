"""`turngym verify grader`: hostile completions, right and wrong ones, a corpus of equal answers, threads, deadlines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turngym.tests.verify.grader.answers import Answer, answers
from turngym.tests.verify.grader.equivalence import LISTED, Pair, judged, pairs
from turngym.tests.verify.grader.predicates import check_known
from turngym.tests.verify.grader.right import Written, right
from turngym.tests.verify.grader.wrong import wrong
from turngym.tests.verify.rows import Row, first

if TYPE_CHECKING:
    from turngym.envs.math import MathGrader

GOLDS = (
    ("gsm8k_test.jsonl", "gsm8k_train.jsonl.gz"),
    ("math_train.jsonl.gz", "math_test_minus500.jsonl.gz"),
)
PAID = 0.995  # the share of right completions that must be paid


@dataclass(frozen=True)
class Grader:
    """The math grader on hostile, right, wrong and disputed answers, from many threads, and against its limit."""

    seed: int = 0
    """Keys all randomness."""
    answers: Path = Path("../shared/corpora/adversarial_answers.jsonl")
    """File of hostile completions and what must hold for each."""
    equiv: Path = Path("../shared/data/answer_equiv/equiv_cases.jsonl")
    """File of pairs of answers that are said to be equal or not."""
    data: Path = Path("../shared/data/math")
    """Folder with the task files of GSM8K and MATH, whose golds the completions are written from."""
    completions: int = 2000
    """Right completions, and as many wrong ones."""
    processes: int = 3
    """Fresh processes in which each hostile completion is graded."""
    threads: int = 32
    """Threads that grade at once."""
    limit: float = 1.0
    """Seconds that a hostile answer may take where its overrun is measured."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows: hostile completions, leaks, right and wrong ones, the corpus, threads, deadlines."""
        from turngym.envs.math import MathGrader
        from turngym.tests.verify.grader.concurrency import overruns, together
        from turngym.tests.verify.grader.hostile import hostile

        played, others = answers(self.answers)
        for answer in played:
            for predicate in answer.must_hold:
                check_known(answer.id, predicate)
        disputed, golds = pairs(self.equiv), _golds(self.data, self.seed)
        yield from self._hostile(played, others)
        grader = MathGrader()
        paid, unpaid = list(right(golds, self.completions)), list(wrong(golds, self.completions))
        yield _counted(grader, "right completions in many forms paid", paid, 1.0, PAID)
        yield _counted(grader, "wrong completions not paid", unpaid, 0.0, 1.0)
        yield _corpus(disputed)
        yield together(paid + unpaid, list(hostile(self.seed)), self.threads, self.limit, self.seed)
        yield overruns(list(hostile(self.seed + 1)), self.limit)

    def _hostile(self, played: Sequence[Answer], others: Counter[str]) -> Iterator[Row]:
        from turngym.tests.verify.grader.trials import seen, unheld

        everything, leaks = seen(played, self.processes, self.seed)
        wrong = [
            f"{answer.id}: {'; '.join(fault)}"
            for answer in played
            if (fault := unheld(answer, everything[answer.id]))
        ]
        left_out = ", ".join(f"{count} of {env} left out" for env, count in others.items())
        slowest = max((one.seconds for those in everything.values() for one in those), default=0.0)
        note = first(wrong) or "; ".join(
            filter(None, [f"slowest grading {slowest:.2f} s", left_out])
        )
        what = f"hostile completions hold every predicate in {self.processes} fresh processes"
        yield Row(what, len(played) - len(wrong), len(played), note)
        yield leaks


def _counted(
    grader: MathGrader, what: str, written: Sequence[Written], score: float, need: float
) -> Row:
    """Count the completions that get `score`."""
    ways, faults = Counter[str](), []
    for one in written:
        ways.update(one.ways)
        if grader.grade(completion=one.text, gold=one.gold).score != score:
            faults.append(f"{' + '.join(one.ways)} of {one.gold!r}")
    forms = (
        f"{len(ways)} forms: {', '.join(f'{name} {count}' for name, count in sorted(ways.items()))}"
    )
    note = "; ".join(filter(None, [first(faults, 20), forms]))
    return Row(what, len(written) - len(faults), len(written), note, need)


def _corpus(disputed: Sequence[Pair]) -> Row:
    """Count the pairs on which we agree with the corpus, or disagree as the policy says."""
    from turngym.envs.math import MathGrader

    graders = {extract: MathGrader(extract=extract) for extract in ("box", "last")}

    def pays(row: Pair) -> bool:
        return graders[row.extract].grade(completion=row.completion, gold=row.gold).score == 1.0

    faults, listed = [], 0
    for row, fault in judged(disputed, pays):
        listed += row.key in LISTED
        if fault:
            faults.append(f"{row.key} {fault}: {row.gold!r:.60} and {row.pred!r:.60}")
    agreed = f"{len(disputed) - listed} as the corpus does, {listed} otherwise, each listed with its reason"
    what = "disputed pairs judged as the corpus does, or as the policy says"
    return Row(what, len(disputed) - len(faults), len(disputed), first(faults, 20) or agreed)


def _golds(folder: Path, seed: int) -> list[str]:
    """Return golds of GSM8K and MATH in turn, drawn by `seed`."""
    from turngym.envs.rows import load_jsonl

    drawn = []
    for names in GOLDS:
        tasks = [load_jsonl(folder / name) for name in names]
        golds = [set_[i].gold for set_ in tasks for i in range(len(set_))]
        random.Random(f"golds {seed}").shuffle(golds)
        drawn.append(golds)
    return [gold for pair in zip(*drawn) for gold in pair]
