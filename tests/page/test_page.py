"""The page answers clicks and keys, fits its window, and stays quick with ten thousand turns."""

import json

import pytest

from turngym.tests.support.runs import write_run
from turngym.training.report.page import serve, write_page

HOSTILE = "</pre><script>document.title = 'taken'</script><img src=x onerror=alert(1)>\x00\x1b[31m \u202e txet"
LONG_TASKS = """() => { window.long = []; new PerformanceObserver((list) =>
  window.long.push(...list.getEntries().map((one) => one.duration))).observe({ type: "longtask" }); }"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = write_run(
        tmp_path_factory.mktemp("page") / "run", steps=12, speak=lambda *where: HOSTILE
    )
    write_page([folder], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Ten thousand turns of the agent, two thousand of them in one episode."""
    base = tmp_path_factory.mktemp("large")
    write_run(base / "run", steps=20, tasks=10, group=10, turns=4, tokens=40)
    write_run(base / "deep", steps=1, tasks=1, group=1, turns=2000, tokens=10)
    write_page([base / "run", base / "deep"], base / "report.html")
    return base / "report.html"


def test_failed_episodes_of_the_last_step_are_two_clicks(page, show):
    tab = show(page)
    tab.click("text=Failed >> nth=0")
    tab.click("text=Last step")
    rows = tab.locator("#episodes .row")
    assert rows.count() == 2 and tab.locator("#episodes output").inner_text() == "2 of 96 episodes"
    assert all("step 12" in text and "no_answer, cut" in text for text in rows.all_inner_texts())
    tab.select_option("select[aria-label='Stop reason']", "answered")
    assert rows.count() == 0
    tab.select_option("select[aria-label='Stop reason']", "")
    tab.fill("input[aria-label=Task]", "1")
    assert rows.count() == 1


def test_a_transcript_shows_tokens_and_hostile_text_as_text(page, show):
    tab = show(page)
    tab.locator("#episodes .row").first.click()
    tab.wait_for_selector("#transcript .tok", state="attached")
    tab.click("text=Unfold calls and answers")
    text = tab.locator("#transcript").text_content()  # also of what is out of sight
    assert (
        "<script>document.title = 'taken'</script><img src=x" in text
        and "⟨0000⟩⟨001B⟩[31m ⟨202E⟩ txet" in text
    )
    assert (
        tab.title() != "taken" and tab.locator("#transcript img, #transcript script").count() == 0
    )
    shaded = "() => [...document.querySelectorAll('#transcript .tok')].filter((one) => one.style.background).length"
    counts = {}
    for name in ("entropy", "advantage", "learner − sampler", "plain"):
        tab.click(f"#transcript .chip >> text={name}")
        counts[name] = tab.evaluate(shaded)
    assert (
        counts["entropy"] > 15 and counts["advantage"] == 24 and counts["learner − sampler"] == 24
    )
    assert counts["plain"] == 0
    assert (
        "é<|im_end|>" in tab.locator("#transcript pre").last.text_content()
    )  # a letter of two tokens


def test_keys_do_what_the_pointer_does(page, show):
    tab = show(page)
    tab.focus("#turns svg[role=img]")
    tab.keyboard.press("Home")
    assert "turn 0, step 1" in tab.locator("#tip").inner_text()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    assert (
        "turn 1, step 2" in tab.locator("#tip").inner_text()
        and "0.375" in tab.locator("#tip").inner_text()
    )
    tab.keyboard.press("Enter")
    assert tab.locator("#episodes output").inner_text() == "8 of 96 episodes"
    tab.focus("#episodes .list")
    tab.keyboard.press("End")
    tab.wait_for_selector("#transcript h3:has-text('Step 2, task 1, branch 3')")
    tab.keyboard.press("ArrowUp")
    tab.wait_for_selector("#transcript h3:has-text('Step 2, task 1, branch 2')")
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "transcript"


def test_a_node_of_a_tree_opens_its_path(page, show):
    tab = show(page)
    tab.locator("#tree").scroll_into_view_if_needed()
    tab.wait_for_selector("#tree .node")
    assert tab.locator("#tree .node").count() == 8 and tab.locator("#tree .leaf").count() == 4
    tab.locator("#tree .leaf").nth(3).click()
    tab.wait_for_selector("#transcript h3:has-text('Step 12, task 0, branch 3')")
    tab.locator("#tree .node").first.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#transcript h3:has-text('Step 12, task 0, branch 0')")
    tab.locator("#tree select").last.select_option("1")
    tab.wait_for_selector("#tree figcaption:has-text('Task 1')")


def test_numbers_that_are_shown_are_those_of_the_files(page, show):
    lines = [json.loads(line) for line in (page.parent / "metrics.jsonl").read_text().splitlines()]
    tab = show(page)
    tab.select_option("#learning select", "reward")
    tab.focus("#learning svg[role=img] >> nth=-1")
    for step in (12, 11, 10):
        tab.keyboard.press("End" if step == 12 else "ArrowLeft")
        shown = tab.locator("#tip").inner_text()
        assert (
            f"step {step}" in shown and f"{float(format(lines[step]['reward'], '.3g')):g}" in shown
        )


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (320, "dark")]
)
def test_nothing_is_wider_than_the_window(page, show, width, scheme):
    tab = show(page, viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab.locator("#episodes .row").first.click()
    tab.wait_for_selector("#transcript .tok", state="attached")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    paper = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == (scheme == "dark")


def test_every_control_has_a_name(page, show):
    tab = show(page)
    nameless = """() => [...document.querySelectorAll("button, select, input, [tabindex='0'], a, svg[role=img]")]
      .filter((one) => !(one.getAttribute("aria-label") || one.textContent || one.labels?.length))
      .map((one) => one.outerHTML)"""
    assert tab.evaluate(nameless) == []


def test_ten_thousand_turns_open_at_once_and_scroll_without_long_tasks(large, show):
    tab = show(large)
    opened = tab.evaluate("performance.now()")  # milliseconds since the page was asked for
    assert (
        tab.locator("#episodes output").inner_text().startswith("2,000 of 2,000 episodes")
        and opened < 2000
    )
    tab.wait_for_timeout(500)
    tab.evaluate(LONG_TASKS)
    scroll(tab, "#episodes .list")
    tab.locator("#episodes .row").first.click()
    tab.select_option(".which select", "1")
    tab.locator("#episodes .row").first.click()
    tab.wait_for_selector("#transcript .tok", state="attached")
    tab.evaluate("window.long.length = 0")
    scroll(tab, "#transcript")
    assert tab.locator("#transcript .turn").count() > 300
    assert [one for one in tab.evaluate("window.long") if one > 100] == []


def scroll(tab, box):
    """Scroll a box as a wheel does, twenty screens."""
    tab.hover(box)
    for _ in range(40):
        tab.mouse.wheel(0, 900)
        tab.wait_for_timeout(30)


def test_a_live_page_follows_the_run(tmp_path, show):
    folder = write_run(tmp_path / "run", steps=4)
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:3]))
    (folder / "summary.json").rename(tmp_path / "later")
    with serve([folder]) as url:
        tab = show(url)
        assert tab.locator("#overview dd").nth(1).inner_text().startswith("2 of")
        tab.click("text=Failed >> nth=0")
        metrics.write_text("".join(lines))
        tab.wait_for_selector("#overview dd:has-text('4 of')", timeout=30_000)
        assert (
            tab.locator("#episodes output").inner_text() == "8 of 32 episodes"
        )  # the filter stays
        tab.locator("#episodes .row").last.click()
        tab.wait_for_selector("#transcript .tok", state="attached")
