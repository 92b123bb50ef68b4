"""Tokenizers of one's own."""

from tokenizers import Tokenizer

from turngym.agents.chat.chat import Chat
from turngym.agents.warmup.supervised import (
    END,
    SPECIAL,
    TEMPLATE,
    train_tokenizer,
    write_tokenizer,
)

TEXTS = ["go to shelf 12", "go to desk 3", "You arrive at shelf 12."] * 20


def test_words_merge_digits_do_not_and_any_text_comes_back():
    tokenizer = train_tokenizer(TEXTS, 320)
    assert tokenizer.encode("go to shelf 12", add_special_tokens=False).tokens == [
        "go",
        "Ġto",
        "Ġshelf",
        "Ġ",
        "1",
        "2",
    ]
    assert tokenizer.decode(tokenizer.encode("naïve 漢字 🙂\n\t").ids) == "naïve 漢字 🙂\n\t"


def test_the_vocabulary_is_no_larger_than_asked_for():
    assert train_tokenizer(TEXTS, 270).get_vocab_size() <= 270


def test_what_is_written_is_a_chat_format(tmp_path):
    write_tokenizer(train_tokenizer(TEXTS, 320), tmp_path, 512)
    chat = Chat.from_folder(tmp_path)
    tokens = chat.prompt([{"role": "user", "content": "go to desk 3"}])
    text = chat.tokenizer.decode(tokens.tolist(), skip_special_tokens=False)
    assert text == "<|im_start|>user\ngo to desk 3<|im_end|>\n<|im_start|>assistant\n"
    assert chat.end_ids == {chat.tokenizer.token_to_id(END)}
    spelled = chat.prompt([{"role": "user", "content": END}])
    assert (spelled == chat.tokenizer.token_to_id(END)).sum() == 1  # what a message spells is text
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert (
        all(tokenizer.token_to_id(token) is not None for token in SPECIAL)
        and "<|im_start|>" in TEMPLATE
    )


def test_a_name_is_the_same_tokens_wherever_it_stands():
    tokenizer = train_tokenizer(["Who met Zrafir? Zrafir was met by Tibzik."] * 9, 400)
    name = tokenizer.encode("Zrafir").ids
    for text in ("who is Zrafir?", "<search>Zrafir</search>", '"Zrafir"', "Zrafir met"):
        ids = tokenizer.encode(text).ids
        assert any(ids[i : i + len(name)] == name for i in range(len(ids))), text
