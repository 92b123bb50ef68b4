"""What `turngym analyse` measures equals the same from its definition, on made-up runs and on a real one."""

import json
from collections import Counter
from itertools import chain, product
from math import exp, log

import numpy as np
import pytest

from turngym.__main__ import main
from turngym.agents.journal.trees import read_trees
from turngym.tests.support.runs import write_run
from turngym.training.metrics import entropy_analysis as analyse
from turngym.training.report.data import read

for package in ("sacrebleu", "scipy", "sklearn"):
    pytest.importorskip(package, reason="the analysis extra is not installed")


def grams(tokens, n):
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def bleu(words, references):
    """BLEU-4 of Papineni et al. 2002 with the orders that there are; an order without a match counts 1/2, 1/4, …"""
    logs, halves = [], 1
    for n in range(1, min(4, len(words)) + 1):
        found, most = Counter(grams(words, n)), Counter()
        for reference in references:
            most |= Counter(grams(reference, n))
        matched, total = sum((found & most).values()), sum(found.values())
        if not matched:
            halves *= 2
        logs.append(log((matched or 1 / halves) / total))
    near = min(
        (len(one) for one in references), key=lambda length: (abs(length - len(words)), length)
    )
    return min(1.0, exp(1 - near / len(words))) * exp(sum(logs) / len(logs))


def ranks(values):
    return np.array(
        [
            sum(other < value for other in values) + sum(other == value for other in values) / 2
            for value in values
        ]
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read(
        [write_run(tmp_path_factory.mktemp("made") / "run", steps=6, tasks=3, group=4)]
    ).runs[0]


def paths(run, step):
    """Tokens, entropy, logp and score of each path of a step, by the key of its tree, with another reader."""
    for tree in read_trees(run.journals[step]):
        for leaf in tree.leaves:
            turns = [tree.turns[node] for node in tree.replies(leaf)]
            columns = (
                np.concatenate([getattr(turn, name) for turn in turns])
                for name in ("tokens", "entropy", "logp_roll")
            )
            yield tree.key, leaf, *columns


def test_a_step_is_measured_as_its_journal_has_it(run):
    for step in run.journals:
        found, every = analyse.measured(list(analyse.responses(run, step))), list(paths(run, step))
        by_prompt = {key: [row for row in every if row[0] == key] for key, *_ in every}
        entropy, logp = (np.concatenate([row[at] for row in every]).astype(float) for at in (3, 4))
        right = np.array([row[1].score >= 1 for row in every])
        mean = np.array([row[4].astype(float).mean() for row in every])
        advantage = np.concatenate(
            [np.full(len(row[2]), -0.5 if place % 2 else 0.5) for place, row in enumerate(every)]
        )
        prompts = [
            np.concatenate([row[3] for row in rows]).astype(float).mean()
            for rows in by_prompt.values()
        ]
        kinds = [
            [grams(row[2].tolist(), n) for row in rows]
            for rows in by_prompt.values()
            for n in (1, 2, 3, 4)
        ]
        wanted = {
            "entropy": entropy.mean(),
            "entropy_response": np.mean([row[3].astype(float).mean() for row in every]),
            "entropy_prompt": np.mean(prompts),
            "diversity": np.mean([len({*chain(*own)}) / len([*chain(*own)]) for own in kinds]),
            "reward": right.mean(),
            "logp_right": mean[right].mean(),
            "logp_wrong": mean[~right].mean(),
            "auroc": np.mean(
                [(a > b) + (a == b) / 2 for a, b in product(mean[right], mean[~right])]
            ),
            "cov": np.cov(logp, advantage, ddof=0)[0, 1],
            "cov_p": np.cov(logp, np.exp(logp) * advantage, ddof=0)[0, 1],
            "self_bleu": 1.0,  # all say the same
        }
        places = np.ceil(np.exp(mean) * 10)  # a bin holds its upper end
        wanted["ece"] = sum(
            abs(right[at].mean() - np.exp(mean)[at].mean()) * at.mean()
            for at in map(places.__eq__, set(places))
        )
        assert sorted(found) == sorted(analyse.QUANTITIES)
        assert found == pytest.approx(wanted, abs=1e-9)


def test_self_bleu_is_bleu_against_the_others():
    texts = ["a b c d e", "a b c x e f", "a b c d e", "b", "d e f g h i j"]
    words = [text.split() for text in texts]
    wanted = [bleu(own, words[:place] + words[place + 1 :]) for place, own in enumerate(words)]
    assert 0.1 < np.mean(wanted) < 0.9
    assert analyse.self_bleu(texts) == pytest.approx(np.mean(wanted), abs=1e-9)
    assert np.isnan(analyse.self_bleu(["alone"]))


def test_rank_correlations_are_those_of_ranks():
    rng = np.random.default_rng(3)
    one, other = (dict(enumerate(rng.integers(0, 9, 20).astype(float).tolist())) for _ in range(2))
    wanted = np.corrcoef(ranks(one.values()), ranks(other.values()))[0, 1]
    assert analyse.spearman(one, other) == pytest.approx(wanted, abs=1e-9)
    assert analyse.spearman(one, dict.fromkeys(one, 1.0)) is None  # what never changes has no rank


def test_the_reward_law_has_the_worked_example():
    """control.md H, the law."""
    entropy = dict(enumerate([1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05]))
    reward = dict(enumerate([0.10, 0.245, 0.32, 0.385, 0.41, 0.436, 0.447]))
    law = analyse.reward_law(entropy, reward)
    assert (law["a"], law["b"], law["b"] - law["a"]) == pytest.approx(
        (0.208355, 0.665358, 0.457003), abs=1e-6
    )
    slope, intercept = np.polyfit(np.exp(list(entropy.values())), list(reward.values()), 1)
    left = np.array(list(reward.values())) - slope * np.exp(list(entropy.values())) - intercept
    r2 = 1 - (left**2).sum() / (np.var(list(reward.values())) * 7)
    assert (law["a"], law["b"], law["r2"]) == pytest.approx((-slope, intercept, r2), abs=1e-9)
    assert analyse.reward_law({1: 0.5}, {1: 0.5}) is None


def test_the_change_of_entropy_is_that_to_the_next_step():
    cov = dict(enumerate([0.3, 0.1, 0.2, 0.05, 0.4]))
    entropy = {0: 2.0}
    for step, value in cov.items():
        entropy[step + 1] = entropy[step] - 0.5 * value
    law = analyse.entropy_law(entropy, cov)
    assert (law["slope"], law["intercept"], law["r2"], law["spearman"]) == pytest.approx(
        (0.5, 0, 1, 1), abs=1e-9
    )


def test_the_command_prints_a_table_and_writes_all_numbers(run, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["analyse", str(run.folder), "--quiet"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(name in said for name in analyse.QUANTITIES) and "dH by -cov: slope" in said
    data = json.loads((run.folder / "analysis.json").read_text())["runs"][0]
    found = analyse.Analysis.of(run)
    assert data["spearman"] == found.spearman and data["reward_law"] == found.reward_law
    assert {int(step): value for step, value in data["series"]["ece"].items()} == found.series[
        "ece"
    ]


@pytest.mark.parametrize(
    "broken, said", [("updates", "no updates/"), ("trees", "no trees/"), ("all", "does not exist")]
)
def test_what_is_missing_is_said_in_a_line(tmp_path, capsys, broken, said):
    folder = write_run(tmp_path / "run", steps=1)
    (folder if broken == "all" else folder / broken).rename(tmp_path / "away")
    with pytest.raises(SystemExit) as ended:
        main(["analyse", str(folder), "--quiet"])
    out = capsys.readouterr().err
    assert ended.value.code == 2 and said in " ".join(out.split()) and out.count("error:") == 1


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(analyse, "find_spec", lambda name: None if name == "sklearn" else object())
    with pytest.raises(SystemExit):
        main(["analyse", str(write_run(tmp_path / "run", steps=1)), "--quiet"])
    said = " ".join(capsys.readouterr().err.split())
    assert (
        'scikit-learn is not installed; install the analysis extra: pip install "turngym[analysis]"'
        in said
    )
