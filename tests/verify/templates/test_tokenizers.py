import base64
import gzip

import pytest

from turngym.agents.chat import Chat, Template
from turngym.tests.verify.templates.tokenizers import letters, names, odd, qwen, shipped

CASES = list(odd())


def joined(ranks, word):
    """Byte-pair encoding by ranks: the pair of the lowest rank is joined first."""
    parts = [bytes([byte]) for byte in word.encode()]
    while len(parts) > 1:
        rank, i = min((ranks.get(parts[i] + parts[i + 1], 1 << 30), i) for i in range(len(parts) - 1))
        if rank == 1 << 30:
            break
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [ranks[part] for part in parts]


def test_a_tokenizer_is_made_from_ranks(qwen_ranks, tmp_path):
    """From the first of Qwen's."""
    ranks = {token: rank for token, rank in qwen_ranks.items() if rank < 3000}
    with gzip.open(tmp_path / "ranks.gz", "wb") as lines:
        lines.writelines(base64.b64encode(token) + f" {rank}\n".encode() for token, rank in ranks.items())
    tokenizer = qwen(tmp_path / "ranks.gz")
    for word in ("Hello", " world", "naïve", " 两个🍎", "\r\n", " information", "===="):
        assert tokenizer.encode(word).ids == joined(ranks, word)
        assert tokenizer.decode(joined(ranks, word)) == word
    assert tokenizer.encode("I'm 12").tokens == ["I", "'m", "Ġ", "1", "2"]
    assert len(names(tokenizer)) == 26 and tokenizer.token_to_id("<|endoftext|>") == 3000


def test_the_shipped_ones_are_four(shared_data, monkeypatch):
    monkeypatch.setattr(
        "turngym.tests.verify.templates.tokenizers.qwen", lambda ranks: letters("<|im_start|>", "<|im_end|>")
    )
    found = {case.name: len(names(case.tokenizer)) for case in shipped(shared_data / "tokenizer")}
    assert found == {"qwen": 2, "torchtitan": 22, "torchtune": 3, "tiny": 5}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_a_chat_whose_turns_begin_and_end_in_its_tokens(case):
    chat = Chat(case.tokenizer, Template(case.template))
    tokens = chat.prompt([{"role": "user", "content": "x"}]).tolist()
    start, end = (case.tokenizer.token_to_id(token) for token in (case.start, case.end))
    assert tokens[0] == start and [index for index in tokens if index == end] == [end] and chat.end_ids() == {end}
    text = "A 'b' é\n  "
    if case.lossless:
        assert case.tokenizer.decode(case.tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_a_case_shows_its_tools():
    case = CASES[0]
    template = Template(case.template)
    assert template.shows([{"type": "function", "function": {"name": "lookup"}}]) and case.start in template.render(
        [], [{"type": "x"}]
    )
