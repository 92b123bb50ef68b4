from turngym.tests.verify.formats.fuzz import calls, completions
from turngym.tools import FORMATS

CORPUS = ["<think>a</think> So: <python>1</python>", "[f(x=1)] and more"]


def test_the_same_arguments_give_the_same_texts_and_each_depends_on_its_number_alone():
    for style in FORMATS.values():
        texts = list(completions(style, CORPUS, 3, 70))
        assert texts == list(completions(style, CORPUS, 3, 90))[:70]
        assert texts != list(completions(style, CORPUS, 4, 70))
        assert list(calls(style, 3, 20)) == list(calls(style, 3, 30))[:20]
    assert list(completions(FORMATS["tags"], CORPUS, 3, 7)) != list(completions(FORMATS["fenced"], CORPUS, 3, 7))


def test_the_texts_are_of_every_kind():
    texts = list(completions(FORMATS["hermes"], CORPUS, 0, 700))
    assert len(set(texts)) > 600
    assert max(map(len, texts)) > 50_000 and min(map(len, texts)) == 0
    assert any("\ud800" in text for text in texts) and any(
        "\udc80" <= char <= "\udcff" for text in texts for char in text
    )
    assert any(CORPUS[0][:20] in text for text in texts) and any("＜" in text for text in texts)
    assert sum("<tool_call>" in text for text in texts) > 200


def test_calls_fit_what_the_format_can_name():
    assert {call.name for call in calls(FORMATS["fenced"], 0, 50)} == {"python"}
    assert {call.name for call in calls(FORMATS["tags"], 0, 50)} == {"python", "search"}
    assert len({call.name for call in calls(FORMATS["hermes"], 0, 50)}) == 3
    assert any(type(value) is dict for call in calls(FORMATS["pythonic"], 0, 50) for value in call.arguments.values())
