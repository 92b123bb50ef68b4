from turngym.agents.chat.chat import Chat
from turngym.tests.verify.templates import encoding


def fault(chat_templates, name, monkeypatch, **changed):
    for attribute, value in changed.items():
        monkeypatch.setattr(Chat, attribute, value)
    found = {one.fault for one in encoding.conversations({name: chat_templates[name]}, ())}
    monkeypatch.undo()
    return found


def test_a_path_that_says_something_else_is_found(chat_templates, monkeypatch):
    """A prompt, a reply, the end of a turn that is not the template's."""
    name, prompt, reply = "qwen2_5.jinja", Chat.prompt, Chat.reply
    assert fault(chat_templates, name, monkeypatch) == {""}
    wrong = {
        "the prompt is not what is rendered": {
            "prompt": lambda self, *said: prompt(self, *said)[:-1]
        },
        "the answer to turn 0 is not what is rendered": {
            "reply": lambda self, *said: reply(self, *said)[:-1]
        },
        "the end of turn 0 is not what is rendered": {
            "reply": lambda self, told, last: reply(self, told, None)
        },
    }
    for words, changed in wrong.items():
        assert words in fault(chat_templates, name, monkeypatch, **changed), words


def test_a_family_knows_the_control_tokens_of_all_its_templates(chat_templates):
    tokenizer = encoding.family(chat_templates)
    for token in (
        "<|im_end|>",
        "<|eot_id|>",
        "<｜tool▁calls▁begin｜>",
        "<end_of_turn>",
        "<think>",
        "<|END_OF_TURN_TOKEN|>",
    ):
        assert tokenizer.token_to_id(token) is not None, token
