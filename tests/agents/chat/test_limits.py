import subprocess
import sys
import time

import pytest

from turngym.agents.chat.template import LONGEST, Template, TemplateError

TALK = [{"role": "user", "content": "hi"}]
DOUBLED = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = OF %}{% endfor %}{{ ns.x }}"
HOSTILE = {
    "range": "{% for i in range(1000000000) %}{{ i }}{% endfor %}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a filtered loop": "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "macro": "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(50) }}",
    "macro, short": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "a long text": "{{ 'a' * 2000000000 }}",
    "a long text, twice": "{% set x = 'a' * 100000 %}{{ (x * 100000) | length }}",
    "a long list": "{{ ([1] * 2000000000) | length }}",
    "a negative number": "{{ (-1000000000 * 1000000000 * 1000000000 * 1000000000) }}",
    "power": "{{ 10 ** 10 ** 10 }}",
    "squares": DOUBLED.replace("'ab'", "7").replace("OF", "ns.x * ns.x"),
    "+": DOUBLED.replace("OF", "ns.x + ns.x"),
    "~": DOUBLED.replace("OF", "ns.x ~ ns.x"),
    "join": DOUBLED.replace("OF", "[ns.x, ns.x] | join"),
    "str.join": DOUBLED.replace("OF", "ns.x.join([ns.x, ns.x])"),
    "set": DOUBLED.replace(
        "{% set ns.x = OF %}", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"
    ),
    "nested lists": DOUBLED.replace("OF", "[ns.x, ns.x]"),
    "nested lists as JSON": DOUBLED.replace("OF", "[ns.x, ns.x]").replace(
        "{{ ns.x", "{{ ns.x | tojson"
    ),
    "nested tables": DOUBLED.replace("OF", "{'a': ns.x, 'b': ns.x}"),
    "nested tables of calls": DOUBLED.replace("OF", "dict(a=ns.x, b=ns.x)"),
    "lists": DOUBLED.replace("'ab'", "[1]").replace("OF", "ns.x + ns.x"),
    "replace": DOUBLED.replace("OF", "ns.x | replace('a', ns.x)"),
    "str.replace": DOUBLED.replace("OF", "ns.x.replace('', ns.x)"),
    "indent": "{% set x = '\n' * 100000 %}{{ x | indent(1000000000, blank=true) }}",
    "indent with text": "{% set x = '\na' * 100000 %}{{ x | indent(x) }}",
    "join with text": "{% set x = 'a' * 100000 %}{{ range(99999) | join(x) }}",
    "str.join with text": "{% set x = 'a' * 100000 %}{{ x.join(x) }}",
    "slices": "{% set x = 'a' * 1000000 %}{% set y = [" + "x[1:]," * 999 + "] %}",
    "slices in a loop": "{% set ns = namespace(l=[]) %}{% set x = 'a' * 999999 %}"
    "{% for i in range(99999) %}{% set ns.l = ns.l + [x[i:]] %}{% endfor %}",
    "written over and over": "{% for i in range(99999) %}" + "a" * 99_999 + "{% endfor %}",
    "map": "{% set x = 'a' * 999999 %}{{ range(99999) | map('replace', '', x) | list | length }}",
    "select": "{% set x = 'a' * 999999 %}{% set y = 'a' * 999999 %}{{ [x] * 99999 | select('eq', y) | list }}",
    "format": "{{ '%2000000000d' | format(1) }}",
    "%": "{{ '%2000000000d' % 1 }}",
    "str.format": "{{ '{:2000000000d}'.format(1) }}",
    "str.format_map": "{{ '{a:2000000000d}'.format_map({'a': 1}) }}",
    "mapped format": "{{ ['%2000000000d'] | map('format', 1) | list }}",
    "center": "{{ 'a' | center(2000000000) }}",
    "str.center": "{{ 'a'.center(2000000000) }}",
    "str.zfill": "{{ messages[0].content.zfill(2000000000) }}",
    "str.ljust": "{{ messages[0]['content'].ljust(2000000000) }}",
    "str.expandtabs": "{{ '\t\t'.expandtabs(2000000000) }}",
    "str.translate": "{{ 'aa'.translate({97: 'b' * 1000000}) }}",
    "batch": "{{ [1] | batch(2000000000, 0) | list }}",
    "slice": "{{ [1] | slice(2000000000) | list }}",
    "wordwrap": "{{ 'a b' | wordwrap(1, wrapstring='x' * 100000) }}",
    "lipsum": "{{ lipsum(2000000000) }}",
    "date": "{{ strftime_now('%2000000000d') }}",
    "date with a flag": "{{ strftime_now('%_02000000000d') }}",
    "JSON": "{{ messages | tojson(indent=2000000000) }}",
    "JSON with text": "{{ [[[[]]]] | tojson(indent='x' * 100000) }}",
    "separators": "{{ range(9) | list | tojson(separators=('x' * 1000, 'y')) }}",
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "include": "{% include '/etc/passwd' %}",
    "deep brackets": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "deep loops": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "a long number": "{{ " + "9" * 5000 + " }}",
    "a long template": "a" * (LONGEST + 1),
    "no jinja": "{% for %}",
    "lines of an error": "{{ raise_exception('a\nb\n' * 1000) }}",
}
CODE = """
import resource, sys
from turngym.agents.chat.template import Template, TemplateError
from turngym.tests.agents.chat.test_limits import HOSTILE, TALK
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for name, source in HOSTILE.items():
    try:
        Template(source).render(TALK, generate=True)
        print(name, 'is rendered')
    except TemplateError as error:
        if len(str(error).splitlines()) > 1 or len(str(error)) > 500 or 'MemoryError' in repr(error.__cause__):
            print(name, 'says', error)
print('over')
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_without_end_is_refused_in_one_line(name):
    began = time.process_time()
    with pytest.raises(TemplateError) as caught:
        Template(HOSTILE[name]).render(TALK, generate=True)
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)
    assert time.process_time() - began < 5  # seconds; most take a hundredth


@pytest.mark.slow
def test_a_template_without_end_stays_within_a_gigabyte():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "over\n", done.stdout + done.stderr[-500:]


def test_the_allowance_grows_with_the_conversation_and_is_the_threads_own():
    template = Template(
        "{% for m in messages %}{{ m.content | trim | replace('a', 'bb') }}{% endfor %}"
    )
    talk = [{"role": "user", "content": "a" * 100_000}] * 60
    assert len(template.render(talk)) == 2 * 100_000 * 60
    for _ in range(3):  # each render has its own
        assert len(template.render(talk)) == 2 * 100_000 * 60


def test_dates_and_json_stay_as_they_were():
    source = "{{ strftime_now('%d %b %Y, %-d 100%%') }} {{ messages | tojson(indent=4) }}"
    assert (
        Template(source)
        .render(TALK)
        .startswith('26 Jul 2024, 26 100% [\n    {\n        "role": "user"')
    )
