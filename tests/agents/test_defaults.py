"""Defaults that fit the policy."""

import pytest

from turngym.agents.cli.settings import SamplingOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.journal import checkpoint
from turngym.agents.models import resolve as source
from turngym.agents.models.resolve import MODELS, OWN_TOKENS, TINY, Source, find, max_tokens


@pytest.fixture
def sized(monkeypatch):
    """Sets how many parameters every model has."""
    return lambda size: monkeypatch.setattr(source, "parameters", lambda folder: size)


@pytest.fixture
def run_of(tmp_path):
    """Makes a run with a checkpoint, whose config has some lines."""

    def make(lines):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.toml").write_text(f"[train]\n{lines}\n")
        checkpoint.save(
            tmp_path / "run" / "checkpoints", 1, {}, lambda folder: (folder / "adapter").mkdir()
        )
        return tmp_path / "run"

    return make


def test_turngym_knows_its_own_policies_by_their_chat_template(stranger, tmp_path):
    assert Source(TINY).is_own and not Source(stranger).is_own
    (stranger / "tokenizer_config.json").write_bytes((TINY / "tokenizer_config.json").read_bytes())
    assert Source(stranger).is_own  # as a folder of `turngym warmup`
    (stranger / "chat_template.jinja").write_text("")
    assert not Source(stranger).is_own  # the file is what counts
    assert not Source(tmp_path).is_own


@pytest.mark.parametrize(("size", "row"), [(5e8, 0), (1e9, 0), (1.5e9, 1), (4.1e9, 2), (7e10, 2)])
def test_a_model_takes_the_defaults_of_its_size(stranger, sized, size, row):
    sized(size)
    assert Source(stranger).defaults() == MODELS[row][1]
    assert max_tokens(Source(stranger)) == MODELS[row][1]["max_tokens"]


def test_what_turngym_made_takes_none_of_them():
    assert Source(TINY).defaults() == {}
    assert max_tokens(Source(TINY)) == OWN_TOKENS
    assert max_tokens(None) == MODELS[-1][1]["max_tokens"]  # of unknown size


@pytest.mark.parametrize(("trained", "most"), [("77", 77), ('"x"', None), ("1.5", None)])
def test_a_run_is_asked_for_turns_as_long_as_it_was_trained_with(run_of, trained, most):
    run = find(run_of(f'policy = "tiny"\nmax_tokens = {trained}'))
    if most is not None:
        assert max_tokens(run) == most
    else:
        with pytest.raises(
            ValueError, match=r"max_tokens is .* in .*config\.toml; give a number: --max-tokens 512"
        ):
            max_tokens(run)


def test_an_evaluation_draws_as_many_tokens_as_fit_the_policy_or_as_it_is_told(stranger, sized):
    sized(7e9)

    def asked(policy, **sampling):
        options = {"split": "test"}
        found = evaluate.prepare(
            "turngym/Math-v0",
            options,
            str(policy),
            episodes=1,
            sampling=SamplingOptions(**sampling),
        )
        return found.sampling.max_tokens, found.sampling.temperature

    assert asked("tiny") == (OWN_TOKENS, 1.0)
    assert asked(stranger, temperature=0.5) == (1024, 0.5)
    assert asked(stranger, max_tokens=7) == (7, 1.0)
    with pytest.raises(ValueError, match="max_tokens is 0; it must be at least 1"):
        asked("tiny", max_tokens=0)
