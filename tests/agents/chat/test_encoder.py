import json
import shutil

import jinja2
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from turngym.agents.chat.chat import Encoder, add_named_tokens
from turngym.agents.chat.rendering import MarkedEnvironment, MarkedText, join, template_text
from turngym.tests.verify.templates.tokenizers import letters, odd

CASES = {case.name: case for case in odd()}
CALM = ["x user", " be x\n 1+1 = é? ok ", "", "tool\n\n", "A user's 'q'\t"]


def marked(*pieces):
    """Text of pieces; those in a list are a message's."""
    return join(
        MarkedText(piece[0]) if isinstance(piece, list) else template_text(piece)
        for piece in pieces
    )


def pieces_of(tokenizer, text, **options):
    return [
        tokenizer.id_to_token(int(index)) for index in Encoder(tokenizer).encode(text, **options)
    ]


def whole(tokenizer, text):
    return tokenizer.encode(str.__str__(text), add_special_tokens=False).ids


@pytest.mark.parametrize("name", CASES)
def test_calm_text_is_encoded_as_the_tokenizer_does_it(name):
    """Also where the tokenizer marks first words, folds letters, or lets control tokens swallow blanks."""
    case = CASES[name]
    encoder = Encoder(case.tokenizer)
    for words in CALM:
        if name == "straddles" and words.strip() != words:
            continue  # there "\nx" and "x<e>\n" are tokens
        text = marked(
            case.start, "user\n", ["so " + words + "."], case.end, "\n", case.start, "tool\n"
        )
        ids = encoder.encode(text)
        assert (ids.tolist(), ids.dtype) == (whole(case.tokenizer, text), np.int32), words


@pytest.mark.parametrize("name", CASES)
def test_a_spelled_token_is_text_and_the_templates_is_not(name):
    case = CASES[name]
    encoder = Encoder(case.tokenizer)
    start, end = (case.tokenizer.token_to_id(token) for token in (case.start, case.end))
    for token in case.tokenizer.get_added_tokens_decoder().values():
        for words in (
            token.content,
            f"{token.content} {token.content}",
            f" {token.content}{token.content} ",
        ):
            ids = encoder.encode(marked(case.start, [words], case.end)).tolist()
            assert (ids[0], ids[-1]) == (start, end), words
            assert not encoder.control & set(ids[1:-1]), words


def test_which_added_tokens_are_control_tokens():
    tokens = [
        AddedToken("<|end|>"),
        AddedToken("word"),
        AddedToken("    "),
        AddedToken("\n\n"),
        AddedToken("é"),
        AddedToken("\nx"),
        AddedToken("\t", special=True),
        AddedToken("!", special=True),
    ]
    tokenizer = letters()
    tokenizer.add_tokens([token for token in tokens if not token.special])
    tokenizer.add_special_tokens([token for token in tokens if token.special])
    control = {tokenizer.id_to_token(index) for index in Encoder(tokenizer).control}
    assert control == {
        "<|end|>",
        "word",
        "\nx",
        "\t",
    }  # "!" is in the alphabet: text cannot do without it


def test_the_token_of_unknown_characters_is_text():
    tokenizer = CASES["unigram"].tokenizer
    assert pieces_of(tokenizer, marked("<s>", ["aθ"], "</s>")) == ["<s>", "a", "<unk>", "</s>"]
    assert tokenizer.token_to_id("<unk>") not in Encoder(tokenizer).control


def test_added_tokens_that_are_text_keep_their_ids():
    """Control tokens before, between and behind them."""
    tokenizer = letters("<a>", "    ", "<b>", AddedToken("\n\n", normalized=False), "<c>")
    text = marked("<a>", ["x    y\n\n<b>"], "<c>\n", ["\nz"], "<b>")
    ids = Encoder(tokenizer).encode(text).tolist()
    assert [tokenizer.id_to_token(index) for index in ids] == [
        *("<a>", "x", "    ", "y", "\n\n", "<", "b", ">", "<c>", "\n\n", "z", "<b>")
    ]


def test_a_token_that_only_text_completes_is_none():
    """A straddle: the template's letters end where a message goes on, or the other way round."""
    tokenizer = letters("<end>", "t<end>", "<endless>", "<end><end>")
    for text, expected in [
        (marked(["t"], "<end>"), ["t", "<end>"]),
        (marked("<end", ["less>"]), [*"<endless>"]),
        (marked(["<end>"], "<end>"), [*"<end>", "<end>"]),
        (marked("<end>", ["<end>"], "<end><end>"), ["<end>", *"<end>", "<end><end>"]),
        (marked("t", "<e", "nd>"), ["t<end>"]),
    ]:
        assert pieces_of(tokenizer, text) == expected


def test_tokens_sought_before_normalization_are_found_first():
    tokenizer = letters(AddedToken("<a><b>", normalized=True), AddedToken("<b>", normalized=False))
    text = template_text("<a><b><b>")
    assert pieces_of(tokenizer, text) == [*"<a>", "<b>", "<b>"]
    assert Encoder(tokenizer).encode(text).tolist() == whole(tokenizer, text)


@pytest.mark.parametrize(
    "word", ["<s>", "a<s>", "<s><s>", "<s> <call>", "＜ｓ＞", "kg", "㎏", "㎏㎏ kg"]
)
def test_a_word_of_the_vocabulary_that_is_a_control_token_is_taken_apart(word):
    """Without any added token, whole-word models and Unigram would give it for the text."""
    words = ["<unk>", "<s>", "<call>", "kg", "k", "g", "<", ">", "s", "call"]
    level = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    unigram = Tokenizer(
        models.Unigram([(word, -1.0) for word in [*words, "a", "l", "▁", "c", "㎏"]], unk_id=0)
    )
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    for tokenizer in (level, unigram):
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.add_special_tokens(["<unk>", "<s>", "<call>", "kg"])
        control = Encoder(tokenizer).control
        bare = Tokenizer(tokenizer.model)
        bare.pre_tokenizer, bare.normalizer = tokenizer.pre_tokenizer, tokenizer.normalizer
        # Not every model would leak on every word; all must be safe.
        ids = Encoder(tokenizer).encode(marked("<s>", [word], "<s>")).tolist()
        assert ids[0] == ids[-1] == 1 and not control & set(ids[1:-1])


def test_a_folded_look_alike_of_a_token_is_text():
    tokenizer = CASES["folding"].tokenizer
    tricks = [
        "<|Start|>",
        "<|START|>",
        "<|start|>",
        "＜｜Ｓｔａｒｔ｜＞",
        "<｜Start｜>",
        "<|ſtart|>",
    ]
    assert all(
        256 in whole(tokenizer, trick) for trick in tricks
    )  # the tokenizer itself is taken in by all
    for trick in tricks:
        assert 256 not in Encoder(tokenizer).encode(MarkedText(trick))
    assert Encoder(tokenizer).encode(template_text("<|Start|>")).tolist() == [256]


def test_no_private_character_stands_for_a_token():
    tokenizer = letters("<a>", "<b>")
    private = [
        "\U000f0000\U00010001",
        "\U000f0000\U00010002\U00100000\U00010001",
        "\ue000\U00010001" * 3,
        "".join(map(chr, range(0xE000, 0xF900))),
    ]
    encoder = Encoder(tokenizer)
    for text in [*private, "".join(private) + "<a>"]:
        ids = encoder.encode(marked("<a>", [text], "<b>")).tolist()
        assert (ids[0], ids[-1]) == (256, 257) and not encoder.control & set(ids[1:-1])
        assert tokenizer.decode(ids) == f"<a>{text}<b>"
    assert encoder.encode(template_text("<a>")).tolist() == [256]


def test_a_text_that_goes_on_gets_no_mark_of_a_first_word():
    tokenizer = CASES["unigram"].tokenizer
    assert pieces_of(tokenizer, template_text("user")) == ["▁user"]
    assert pieces_of(tokenizer, template_text("user"), inside=True) == [*"user"]
    assert pieces_of(tokenizer, template_text("</s>user"), inside=True) == pieces_of(
        tokenizer, template_text("</s>user")
    )


def test_a_control_token_is_found_whatever_stands_next_to_it():
    """A token that wants to be a word of its own, written by the template next to a message's letter."""
    tokenizer = letters(
        AddedToken("stop", single_word=True), AddedToken("<e>", lstrip=True, rstrip=True)
    )
    assert pieces_of(tokenizer, marked(["a"], "stop", ["b stop c"])) == [
        "a",
        "stop",
        "b",
        "Ġ",
        *"stop",
        "Ġ",
        "c",
    ]
    assert pieces_of(tokenizer, marked("a  <e> \n b")) == ["a", "<e>", "b"]


def test_a_control_token_is_found_where_the_normalizer_hides_it():
    """A mark in front of each piece makes the tokenizer itself miss those behind a letter."""
    tokenizer = CASES["byte-fallback"].tokenizer
    call, text = tokenizer.token_to_id("[INST]"), template_text("<s>[INST] hi [INST]hi[INST]</s>")
    assert whole(tokenizer, text).count(call) == 2
    ids = Encoder(tokenizer).encode(text).tolist()
    assert (
        ids.count(call) == 3 and tokenizer.decode(ids, skip_special_tokens=False).count("hi") == 2
    )
    assert len(ids) < 20  # nothing is left of what stands for the tokens meanwhile


def test_the_tokenizer_itself_is_left_alone():
    tokenizer = CASES["byte-fallback"].tokenizer
    before = tokenizer.to_str()
    Encoder(tokenizer).encode(marked("<s>", ["<s>"]))
    assert tokenizer.to_str() == before


# --- tokens that only the config names


def test_a_folder_whose_config_names_the_tokens_is_read_as_transformers_reads_it(
    shared_data, tmp_path
):
    """Torchtitan's test tokenizer: its control tokens are words of the vocabulary, and tokens in the config only."""
    from transformers import AutoTokenizer

    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(shared_data / "tokenizer" / f"torchtitan_{name}", tmp_path / name)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_added_tokens_decoder() == {}
    add_named_tokens(tokenizer, json.loads((tmp_path / "tokenizer_config.json").read_text()))
    assert len(tokenizer.get_added_tokens_decoder()) == 22
    assert {
        token.content: index for index, token in tokenizer.get_added_tokens_decoder().items()
    } == (theirs.get_added_vocab())
    text = "hi <|im_start|>user <tool_call>[PAD]"
    assert tokenizer.encode(text, add_special_tokens=False).ids == theirs.encode(
        text, add_special_tokens=False
    )


def test_tokens_named_by_their_role_are_added_too():
    tokenizer = letters("<s>")
    add_named_tokens(
        tokenizer,
        {
            "bos_token": "<s>",
            "eos_token": {"content": "</s>", "special": True},
            "unk_token": None,
            "additional_special_tokens": ["<x>", {"content": "<y>"}],
            "extra_special_tokens": {"image_token": "<z>"},
            "add_bos_token": True,
        },
    )
    tokens = tokenizer.get_added_tokens_decoder()
    assert [token.content for token in tokens.values()] == ["<s>", "</s>", "<x>", "<y>", "<z>"]


def test_a_config_that_gives_another_id_is_named():
    with pytest.raises(
        ValueError,
        match=r"gives the token '<x>' the id 7, tokenizer.json gives it 256; save the tok",
    ):
        add_named_tokens(letters(), {"added_tokens_decoder": {"7": {"content": "<x>"}}})


def render(source, **values):
    return MarkedEnvironment().compile_text(source).render(**values)


def shown(text):
    """The text, with what is not the template's in brackets."""
    shown, before = "", "1"
    for letter, mark in zip(text, text.marks, strict=True):
        shown += {"10": "[", "01": "]"}.get(before + mark, "") + letter
        before = mark
    return shown + ("]" if before == "0" else "")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<a>{{ x }}<b>", "<a>[ <a> ]<b>"),
        ("{{ '<a>' + x + '<b>' }}", "<a>[ <a> ]<b>"),
        ("{{ x + '<a>' }}{{ x ~ '<b>' ~ 1 }}", "[ <a> ]<a>[ <a> ]<b>[1]"),
        ("{{ '<a>' + x | trim + '<b>' }}", "<a>[<a>]<b>"),
        (
            "{% set y = '<a> ' + x %}{{ y | trim }}|{{ y.lstrip('<') }}|{{ y[1:4] }}",
            "<a> [ <a>]|a> [ <a> ]|a> ",
        ),
        ("{% set y %} <a>{{ x }}{% endset %}{{ y.strip() }}", "<a>[ <a>]"),
        (
            "{% macro f(t) %}{{ '<' + t + '>' }}{{ x }}{% endmacro %}{{ f('a') }}{{ f(x) }}",
            "<a>[ <a> ]<[ <a> ]>[ <a> ]",
        ),
        (
            "{% macro f() %}<a>{{ caller() }}{% endmacro %}{% call f() %}<b>{{ x }}{% endcall %}",
            "<a><b>[ <a> ]",
        ),
        (
            "{% set n = namespace(t='<a>') %}{% for i in [1, 2] %}{% set n.t = n.t + x %}{% endfor %}{{ n.t }}",
            "<a>[ <a>  <a> ]",
        ),
        ("{{ ('<a>' if x else x) }}{% if '<a>' in x %}<b>{% endif %}", "<a><b>"),
        ("{{ ', '.join(['<a>', x]) }}{{ ['<a>', x] | join }}", "<a>, [ <a> <a> <a> ]"),
        ("{% generation %}<a>{{ x }}{% endgeneration %}", "<a>[ <a> ]"),
        (
            "{{ '<%s>' % x }}{{ '<a>' | replace('a', 'b') }}{{ '<a>' | upper }}",
            "[< <a> ><b><A>]",
        ),
        (
            "{{ {'k': '<a>'} }}{{ 1 + 2 }}{{ none }}{{ missing }}{{ true }}",
            "[{'k': '<a>'}3NoneTrue]",
        ),
    ],
)
def test_what_the_template_wrote_stays_its_own_and_nothing_else_becomes_so(source, expected):
    assert shown(render(source, x=" <a> ")) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{% if x == 'q' %}{{ x.split('|')[0] }}{% endif %}{{ d['key'] }}{{ d.get('key', 'other') }}{{ 'q' in 'qq' }}",
        "{% for k, v in d.items() %}{{ k ~ v }}{% endfor %}{{ x is string }}{{ 'abc' | length }}",
        "{{ [d, d] | selectattr('key', 'equalto', 'v') | list | length }}{{ ['b', 'a'] | sort | join(',') }}",
        "{{ 'a' < 'b' }}{{ 'ab'[::-1] }}{{ 'ab'[-1] }}{{ 'aXb'.split('X') | last }}{{ '%d' % 3 }}{{ 'a' * 3 }}",
        "{%- set a = 'x' -%}  {{- a -}}  {% if a %}\n y {% endif %}\n{# c #}{% raw %}{{ }}{% endraw %}",
    ],
)
def test_a_rendering_says_what_jinja_says(source):
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    values = {"x": "q", "d": {"key": "v"}}
    text = render(source, **values)
    assert text == plain.from_string(source).render(**values)
    assert isinstance(text, MarkedText) and len(text.marks) == len(text)


def test_cutting_and_joining_keep_every_characters_writer():
    text = marked("ab", ["cd"], "e")
    assert (text, text.marks) == ("abcde", "11001")
    assert shown(text[1:4]) == "b[cd]" and shown(text[-2]) == "[d]" and shown(text[:0]) == ""
    assert shown("x" + text + "y") == "[x]ab[cd]e[y]" and shown(text + text) == "ab[cd]eab[cd]e"
    assert (
        shown(marked(" a", [" b "]).strip()) == "a[ b]" and shown(template_text("  ").strip()) == ""
    )
    assert (
        shown(template_text("-").join(["x", template_text("y"), "z"])) == "[x]-y-[z]"
        and template_text("-").join([]) == ""
    )
    assert str(text) is text and hash(text) == hash("abcde") and text == "abcde"
    with pytest.raises(TypeError):
        text + 1
    with pytest.raises(TypeError):
        {} + text


def test_a_template_of_an_environment_stands_alone():
    env = MarkedEnvironment()
    one, two = env.compile_text("<1>{{ x }}"), env.compile_text("<2>{{ x }}")
    assert [shown(each.render(x="y")) for each in (one, two, one)] == ["<1>[y]", "<2>[y]", "<1>[y]"]
