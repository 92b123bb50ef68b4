r"""The math grader beside math-verify, in one run on one machine: how fast plain numbers are, and where the two differ.

    python benchmarks/grader.py [--quick] [--pairs 13000] [--answers 300] [--seed 0]

Speed: for each kind of number, `MathGrader.grade()` and `verify(parse(gold), parse(prediction))` in turn on the same
pair, in CPU seconds; no string occurs twice, since math-verify remembers what it has parsed.

Agreement: each gold of the task files against second forms of itself, golds of other rows and their forms, then every
real prediction. Counted are the pairs that our fast paths decide (no math-verify) and that math-verify reads on both
sides. Where they differ on purpose the rule is named; a difference without a rule makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from math_verify import parse, verify

from turngym.envs.math import MathGrader
from turngym.envs.rows import load_jsonl
from turngym.tests.verify.grader.forms import forms
from turngym.tests.verify.grader.written import clean, number

GOAL = 100.0  # times as fast as math-verify
Pair = tuple[str, str]


def main() -> int:
    """Run both parts; return 1 where a difference has no rule."""
    options = _options()
    logging.disable(logging.CRITICAL)
    began = time.process_time()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}"
    print(
        f"{machine}, Python {platform.python_version()}, math-verify {metadata.version('math-verify')}"
    )
    speed(options.answers, options.seed)
    unruled = agreement(options.data, options.pairs, options.seed)
    print(f"seed {options.seed}, {time.process_time() - began:.0f} s")
    return 1 if unruled else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=13_000,
        help="pairs of golds and their forms; the real predictions come on top",
    )
    parser.add_argument(
        "--answers", type=int, default=300, help="timed pairs of each kind of number"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws numbers and pairs")
    here = Path(__file__).resolve().parent.parent
    parser.add_argument(
        "--data", type=Path, default=here.parent / "shared" / "data", help="folder of real data"
    )
    parser.add_argument("--quick", action="store_true", help="1,000 pairs, 100 answers")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.answers = 1_000, 100
    if not (options.data / "math").is_dir():
        parser.error(
            f"{options.data} has no folder math with the task files; name another: --data FOLDER"
        )
    return options


# --- speed


def speed(size: int, seed: int) -> None:
    """Print the median times of both on each kind of number, and their ratio."""
    grader = MathGrader()
    print(
        f"\n{size} pairs of each kind, half of them equal; medians of a call, in turn (goal {GOAL:.0f}x)"
    )
    for kind in KINDS:
        ours, theirs, differ = [], [], 0
        for gold, given in _numbers(kind, size, seed):
            completion = rf"So the answer is \boxed{{{given}}}."
            began = time.process_time()
            grade = grader.grade(completion=completion, gold=gold)
            middle = time.process_time()
            verdict = verify(parse(f"${gold}$"), parse(completion))
            theirs.append(time.process_time() - middle)
            ours.append(middle - began)
            differ += bool(grade.score) != bool(verdict)
        fast, slow = statistics.median(ours), statistics.median(theirs)
        mark = "ok" if slow >= GOAL * fast else "SHORT"
        times = (
            f"ours {1e6 * fast:7.1f} us   math-verify {1e6 * slow:7.0f} us   {slow / fast:5.0f}x"
        )
        print(f"{mark:5} {kind:20} {times}   {differ} differ")


def _numbers(kind: str, size: int, seed: int) -> Iterator[Pair]:
    """Yield golds and answers of a kind, every second one equal; no string occurs twice."""
    drawn, seen, count = random.Random(f"{kind} {seed}"), set[str](), 0
    while count < size:
        gold, same, other = KINDS[kind](drawn)
        if not seen & {gold, same, other}:
            seen |= {gold, same, other}
            count += 1
            yield gold, same if count % 2 else other


def _integers(drawn: random.Random) -> tuple[str, str, str]:
    n = drawn.randrange(10**3, 10**8)
    return str(n), f"{n}.0", str(n + 1)


def _decimals(drawn: random.Random) -> tuple[str, str, str]:
    n = f"{drawn.randrange(10**4)}.{drawn.randrange(10**4, 10**5)}"
    return n, f"{n}0", f"{n}1"


def _fractions(drawn: random.Random) -> tuple[str, str, str]:
    top, bottom = drawn.randrange(10**3, 10**6), drawn.randrange(10**3, 10**6)
    return (
        rf"\frac{{{top}}}{{{bottom}}}",
        rf"\dfrac{{{top}}}{{{bottom}}}",
        rf"\frac{{{top + 1}}}{{{bottom}}}",
    )


def _negatives(drawn: random.Random) -> tuple[str, str, str]:
    n = drawn.randrange(10**4, 10**9)
    return str(-n), f"-{n:,}", f"{n:,}"


KINDS: dict[str, Callable[[random.Random], tuple[str, str, str]]] = {
    "integers": _integers,
    "decimals": _decimals,
    "fractions": _fractions,
    "negative, thousands": _negatives,
}


# --- agreement


def agreement(folder: Path, size: int, seed: int) -> int:
    """Print where both answer and differ, by rule; return how many differences have none."""
    grader, began = MathGrader(), time.process_time()
    hows, rules, unruled, examples = Counter[str](), Counter[str](), [], dict[str, str]()
    refused, both, texts = Counter[bool](), 0, 0
    made, real = list(pairs(folder / "math", size, seed)), list(predictions(folder))
    for gold, answer in [*made, *real]:
        grade = grader.grade(
            completion=answer if r"\boxed" in answer else rf"\boxed{{{answer}}}", gold=gold
        )
        hows[grade.how] += 1
        if grade.answer is None or grade.how in ("math-verify", "timeout"):
            continue
        verdict, read = theirs(gold, grade.answer)
        if grade.how == "failed":
            refused[verdict] += 1
            continue
        both += read
        texts += not read
        if verdict != (grade.score == 1.0):
            rule = rule_of(gold, grade.answer, read)
            rules[rule] += 1
            ours = f"ours {grade.score:g} ({grade.how}), math-verify {verdict:d}"
            examples.setdefault(rule, f"gold {gold!r}, answer {grade.answer!r}: {ours}")
            if not rule:
                unruled.append(f"  gold {gold!r}, answer {grade.answer!r}: {ours}")
    print(
        f"\n{len(made)} made pairs, {len(real)} real predictions, {time.process_time() - began:.0f} s"
    )
    print("decided by: " + ", ".join(f"{how} {count}" for how, count in hows.most_common()))
    print(
        f"our fast paths and math-verify both answer: {both}; {texts} more where math-verify reads no value on a side"
    )
    print(
        f"refused by us without a comparison: {refused.total()}, of which math-verify pays {refused[True]}"
    )
    for rule, count in rules.most_common():
        print(f"{count:6} differ: {rule or 'WITHOUT A RULE'}\n{'':8}such as {examples[rule]:.160}")
    print("\n".join(unruled) or "0 differ without a rule")
    return len(unruled)


def pairs(folder: Path, size: int, seed: int) -> Iterator[Pair]:
    """Yield pairs: golds of all files in an order that `seed` draws, each with its forms, then with other golds."""
    files = sorted(path for path in folder.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")))
    golds = [tasks[i].gold for tasks in map(load_jsonl, files) for i in range(len(tasks))]
    drawn = random.Random(f"pairs {seed}")
    drawn.shuffle(golds)
    count, done = 0, set[Pair]()
    for gold in golds:
        other = drawn.choice(golds)
        for answer in (gold, *forms(gold).values(), other, *list(forms(other).values())[:1]):
            if count < size and (gold, answer) not in done:
                done.add((gold, answer))
                count += 1
                yield gold, answer


def predictions(folder: Path) -> Iterator[Pair]:
    """Yield every real prediction with its gold, and without one those of a box with themselves and the one before."""
    before = "7919"
    for path in sorted((folder / "answer_equiv").glob("*.jsonl")) + sorted(
        (folder / "tool_calls").glob("*.jsonl")
    ):
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            for name in ("pred", "model_pred", "response"):
                if row.get("gold") and row.get(name):
                    yield str(row["gold"]), str(row[name])
            for box in re.findall(r"\\boxed\{([^{}]+)\}", row.get("text", "")):
                yield box, box
                yield before, box
                before = box


def theirs(gold: str, answer: str) -> tuple[bool, bool]:
    """Return whether math-verify pays, and whether it reads a value on both sides rather than mere text."""
    right, given = parse(f"${gold}$"), parse(rf"\boxed{{{answer}}}")
    read = all(any(not isinstance(one, str) for one in side) for side in (right, given))
    return bool(verify(right, given)), read


# --- differences on purpose: the rules of docs/grader.md


def rule_of(gold: str, answer: str, read: bool) -> str:
    """Return the rule by which we differ from math-verify on purpose; empty when there is none."""
    if not read:
        return "math-verify reads no value on one of the sides and compares text"
    return next((rule for rule, applies in RULES.items() if applies(gold, answer)), "")


def _one_has(pattern: str) -> Callable[[str, str], bool]:
    return lambda gold, answer: bool(re.search(pattern, gold)) != bool(re.search(pattern, answer))


def _either_has(pattern: str) -> Callable[[str, str], bool]:
    return lambda gold, answer: bool(re.search(pattern, gold) or re.search(pattern, answer))


def _near(gold: str, answer: str) -> bool:
    right, given = number(clean(gold)), number(clean(answer))
    return (
        right is not None and given is not None and right != given and abs(right - given) < 10**-6
    )


RULES: dict[str, Callable[[str, str], bool]] = {
    "percent: a sign on one side stands for the number in front of it or for its hundredth": _one_has(
        r"%|percent"
    ),
    "precision: numbers are compared exactly; math-verify rounds to 6 decimals": _near,
    "thousands: a comma before each three digits parts no values": _either_has(
        r"\d,(?:\\!)?\d{3}(?!\d)"
    ),
    "powers of ten: 1.5e3 is 1500; math-verify takes the e for a letter": _either_has(
        r"\d[eE][+-]?\d"
    ),
    "bases: 12_5 is the number 12 in base 5, the same as (12)_{5} and no product": _either_has(
        r"[0-9A-Z]\)?_\{?\d+\}?"
    ),
    "ranges: inequalities and the interval that they describe are one answer, whichever is the gold": _one_has(
        r"\\in(?![a-z])|[\[\]]"
    ),
    "degrees: ° and ^\\circ are the same, and may be left out": _either_has(r"°|\\circ"),
    "words, clock times: text is compared as text; math-verify multiplies its letters": _either_has(
        r"(?<![\\A-Za-z])[A-Za-z]{2,}|\\(?:text|mbox|mathrm)\s*\{|\d:\d\d"
    ),
}


if __name__ == "__main__":
    sys.exit(main())
