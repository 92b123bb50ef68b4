import jinja2
import pytest

from turngym.agents.chat.marked import MarkedEnvironment, MarkedText, join, template_text


def marked(*pieces):
    """Text of pieces; those in a list are a message's."""
    return join(MarkedText(piece[0]) if isinstance(piece, list) else template_text(piece) for piece in pieces)


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
        ("{% set y = '<a> ' + x %}{{ y | trim }}|{{ y.lstrip('<') }}|{{ y[1:4] }}", "<a> [ <a>]|a> [ <a> ]|a> "),
        ("{% set y %} <a>{{ x }}{% endset %}{{ y.strip() }}", "<a>[ <a>]"),
        (
            "{% macro f(t) %}{{ '<' + t + '>' }}{{ x }}{% endmacro %}{{ f('a') }}{{ f(x) }}",
            "<a>[ <a> ]<[ <a> ]>[ <a> ]",
        ),
        ("{% macro f() %}<a>{{ caller() }}{% endmacro %}{% call f() %}<b>{{ x }}{% endcall %}", "<a><b>[ <a> ]"),
        (
            "{% set n = namespace(t='<a>') %}{% for i in [1, 2] %}{% set n.t = n.t + x %}{% endfor %}{{ n.t }}",
            "<a>[ <a>  <a> ]",
        ),
        ("{{ ('<a>' if x else x) }}{% if '<a>' in x %}<b>{% endif %}", "<a><b>"),
        ("{{ ', '.join(['<a>', x]) }}{{ ['<a>', x] | join }}", "<a>, [ <a> <a> <a> ]"),
        ("{% generation %}<a>{{ x }}{% endgeneration %}", "<a>[ <a> ]"),
        (
            "{{ '<%s>' % x }}{{ '<{}>'.format(x) }}{{ '<a>' | replace('a', 'b') }}{{ '<a>' | upper }}",
            "[< <a> >< <a> ><b><A>]",
        ),
        ("{{ {'k': '<a>'} }}{{ 1 + 2 }}{{ none }}{{ missing }}{{ true }}", "[{'k': '<a>'}3NoneTrue]"),
    ],
)
def test_what_the_template_wrote_stays_its_own_and_nothing_else_becomes_so(source, expected):
    assert shown(render(source, x=" <a> ")) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{% if x == 'q' %}{{ x.split('|')[0] }}{% endif %}{{ d['key'] }}{{ d.get('key', 'other') }}{{ 'q' in 'qq' }}",
        "{% for k, v in d.items() %}{{ k ~ v }}{% endfor %}{{ d | tojson }}{{ x is string }}{{ 'abc' | length }}",
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
    assert shown(marked(" a", [" b "]).strip()) == "a[ b]" and shown(template_text("  ").strip()) == ""
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
