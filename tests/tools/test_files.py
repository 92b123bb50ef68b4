"""Files in folders of others: links, pipes, names of temporary files, limits, and TOML that would take all memory."""

import gzip
import os
import re
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turngym.tools import files
from turngym.tools.files import LinkRefused, TooMuch

PRECIOUS = "PRECIOUS\nline 2\n"


@pytest.fixture
def folder(tmp_path):
    """A folder of somebody else, beside a file that is nobody's business."""
    (tmp_path / "victim").write_text(PRECIOUS)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    yield tmp_path / "run"
    assert (tmp_path / "victim").read_text() == PRECIOUS
    assert [*(tmp_path / "elsewhere").iterdir()] == []


READERS = {
    "bytes": lambda path, root=None: files.read_bytes(path, root=root),
    "text": lambda path, root=None: files.read_text(path, root=root),
    "toml": files.read_toml,
    "lines": lambda path, root=None: list(files.open_plain(path, root)),
}
ADDERS = {
    "line": lambda path, root=None: files.append_line(path, "more", root=root),
    "log": lambda path, root=None: files.open_to_append(path, root).write(b"more"),
}


@pytest.mark.parametrize("kind", ["direct", "dangling", "through another", "to a folder"])
@pytest.mark.parametrize("what", [*READERS, *ADDERS])
def test_a_link_is_neither_read_nor_added_to(folder, what, kind):
    target = {
        "direct": "../victim",
        "dangling": "../new",
        "through another": "second",
        "to a folder": "../elsewhere",
    }
    (folder / "second").symlink_to("../victim")
    (folder / "name").symlink_to(target[kind])
    with pytest.raises(
        LinkRefused, match=r"name is a link, or behind one, and within a folder none is followed"
    ):
        (READERS | ADDERS)[what](folder / "name")
    assert not (folder.parent / "new").exists()


@pytest.mark.parametrize("what", [*READERS, *ADDERS, "file", "folder", "remove", "names", "lock"])
def test_a_folder_that_is_a_link_is_not_entered(folder, what):
    (folder / "trees").symlink_to("../elsewhere")
    more = {
        "file": lambda path, root: files.write_file(path, "text", root),
        "folder": lambda path, root: files.make_folder(path, root),
        "remove": lambda path, root: files.remove(path, root),
        "names": lambda path, root: files.list_names(path.parent, root),
        "lock": lambda path, root: files.lock_folder(path.parent, root).__enter__(),
    }
    with pytest.raises(LinkRefused):
        (READERS | ADDERS | more)[what](folder / "trees" / "name", folder)
    with pytest.raises(LinkRefused):
        files.make_folder(folder / "trees", folder)


def test_the_folder_that_a_command_names_is_followed(folder):
    (folder.parent / "short").symlink_to("run")
    short = folder.parent / "short"
    files.write_file(short / "name", "text")
    files.append_line(short / "name", "more", root=short)
    files.make_folder(short / "trees", short)
    files.write_file(short / "trees" / "one", "text", short)
    assert files.list_names(short / "trees", short) == ["one"]
    assert files.read_text(short / "name") == "more\n"  # the text had no end


def test_a_file_takes_the_place_of_a_link(folder):
    (folder / "report.html").symlink_to("../victim")
    files.write_file(folder / "report.html", "page")
    assert (
        not (folder / "report.html").is_symlink() and (folder / "report.html").read_text() == "page"
    )


def test_no_name_that_could_be_known_is_written(folder):
    """Whatever a folder holds under a name that was used yesterday stays what it is."""
    for name in (".name.tmp", "name.tmp", ".name"):
        (folder / name).symlink_to("../victim")
    seen = set()
    for _ in range(3):
        files.write_file(
            folder / "name",
            (names.add(p.name) or b"x" for names in [seen] for p in folder.glob(".name.*")),
        )
    temporary = {name for name in seen if re.fullmatch(r"\.name\.[0-9a-f]{16}\.tmp", name)}
    assert len(temporary) == 3 and sorted(path.name for path in folder.iterdir()) == [
        ".name",
        ".name.tmp",
        "name",
        "name.tmp",
    ]


def test_an_error_and_an_interruption_leave_no_temporary_file(folder):
    def broken():
        yield b"one"
        raise KeyboardInterrupt

    files.write_file(folder / "name", "before")
    with pytest.raises(KeyboardInterrupt):
        files.write_file(folder / "name", broken())
    assert [path.name for path in folder.iterdir()] == ["name"] and (
        folder / "name"
    ).read_text() == "before"


def test_many_may_write_one_file(folder):
    texts = [str(number) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: files.write_file(folder / "page", text), texts))
    assert (folder / "page").read_text() in texts and [path.name for path in folder.iterdir()] == [
        "page"
    ]


def test_what_a_killed_process_left_is_removed_by_name(folder):
    left = [
        ".config.toml.0123456789abcdef.tmp",
        ".page.0123456789abcdef.tmp",
        ".config.toml.tmp",
        "config.toml",
    ]
    for name in left:
        (folder / name).touch()
    files.remove_temporary_files(folder, ["config.toml"])
    assert sorted(path.name for path in folder.iterdir()) == sorted(left[1:])
    assert [files.name_behind_temporary(name) for name in left] == [
        "config.toml",
        "page",
        None,
        None,
    ]


@pytest.mark.parametrize("what", [*READERS, *ADDERS])
def test_a_pipe_a_device_and_a_folder_are_refused_at_once(folder, what):
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    for name in ("pipe", "sub"):
        with pytest.raises(ValueError, match=f"{name} is no plain file"):
            (READERS | ADDERS)[what](folder / name)
    for path in (Path("/dev/zero"), Path("/dev/tty")):
        with pytest.raises(ValueError, match="is no plain file"):
            files.read_bytes(path)
        with pytest.raises(ValueError, match="is no plain file"):
            files.read_bytes(path, follow=True)


def test_a_file_with_a_second_name_is_copied_before_it_grows(folder):
    os.link(folder.parent / "victim", folder / "incidents.jsonl")
    files.append_line(folder / "incidents.jsonl", "more", root=folder)
    assert (folder / "incidents.jsonl").read_text() == PRECIOUS + "more\n"
    assert (folder / "incidents.jsonl").stat().st_nlink == 1


def test_a_path_does_not_lead_out_by_its_dots(folder):
    with pytest.raises(ValueError, match="leads out of"):
        files.write_file(folder / ".." / "elsewhere" / "x", "text", folder)


def test_a_missing_file_is_named_whole(folder):
    with pytest.raises(FileNotFoundError, match=re.escape(f"{folder}/none")):
        files.read_bytes(folder / "none")
    assert files.list_names(folder / "none", folder) == [] and not files.is_plain(folder / "none")
    files.remove(folder / "none")


@pytest.mark.parametrize("kind", ["link out", "pipe"])
def test_a_folder_in_which_others_write_holds_nothing_that_leads_out(folder, kind):
    (folder / "sub").mkdir()
    (folder / "sub" / "inside").symlink_to("..")
    files.refuse_links_out_of(folder)
    files.refuse_links_out_of(folder / "none")
    os.mkfifo(folder / "sub" / "x") if kind == "pipe" else (folder / "sub" / "x").symlink_to(
        "../../victim"
    )
    with pytest.raises(ValueError, match=r"sub/x is (no plain file|a link that leads out)"):
        files.refuse_links_out_of(folder)


# --- limits


def test_a_file_is_read_up_to_its_limit(folder):
    (folder / "name").write_bytes(b"x" * 1025)
    assert len(files.read_bytes(folder / "name", 1025)) == 1025
    with pytest.raises(TooMuch, match="name is larger than 1 KiB"):
        files.read_bytes(folder / "name", 1024)


@pytest.mark.slow
def test_a_long_line_and_a_file_that_unpacks_to_very_much_are_refused(folder):
    (folder / "line.jsonl.gz").write_bytes(gzip.compress(b"[" * (files.MAX_LINE_BYTES + 1)))
    (folder / "many.jsonl.gz").write_bytes(
        gzip.compress(b'{"a": 1}\n' * (files.MIN_UNPACKED_BYTES // 9 + 2))
    )
    (folder / "good.jsonl.gz").write_bytes(gzip.compress(b"one\n" * 1000))
    for name, words in (
        ("line", "line 1: it has more than 32 MiB"),
        ("many", "holds more than 32 MiB"),
    ):
        with pytest.raises(TooMuch, match=words):
            list(files.read_data_lines(folder / f"{name}.jsonl.gz"))
    assert len(list(files.read_data_lines(folder / "good.jsonl.gz"))) == 1000


BOMBS = {
    "a dotted key": "a." * 20_000 + "b = 1",
    "a dotted table": "[" + "a." * 20_000 + "b]",
    "quoted parts": '"a".' * 20_000 + "b = 1",
    "literal parts": "'a'." * 20_000 + "b = 1",
    "spaces around the dots": "a . " * 20_000 + "b = 1",
    "an inline table": "x = {" + "a." * 20_000 + "b = 1}",
    "behind a string": 'x = "a"\n' + "a." * 20_000 + "b = 1",
    "behind a string with quotes at its end": 'x = ["""a"""", {' + "a." * 20_000 + 'b = 1}, ""]',
    "behind a literal with quotes at its end": "x = ['''a'''', {" + "a." * 20_000 + "b = 1}, '']",
    "behind an escaped quote": 'x = ["\\"", {' + "a." * 20_000 + 'b = 1}, "\\""]',
    "behind a comment with a quote": "# it's\n" + "a." * 20_000 + "b = 1",
    "in an array": "x = [{" + "a." * 20_000 + "b = 1}]",
    "brackets": "x = " + "[" * 5_000 + "]" * 5_000,
    "inline tables": "x = " + "{a = " * 5_000 + "1" + "}" * 5_000,
    "a long text": 'x = "' + "y" * files.MAX_TOML_BYTES + '"',
    "many short tables": "[a]\n" * files.MAX_TOML_BYTES,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_toml_that_would_take_all_memory_is_refused_before_it_is_read(folder, bomb):
    (folder / "config.toml").write_text(BOMBS[bomb])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"a key has \d+ dots|nested more than|is larger than"):
        files.read_toml(folder / "config.toml")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_other_toml_is_read_as_ever(folder):
    text = """
        # a.b.c.d.e.f.g.h.i.j.k.l.m
        system = "One. Two. Three. Four. Five. Six. Seven. Eight. Nine. Ten. Eleven. \\" [[[[ it's"
        long = '''1.2.3.4.5.6.7.8.9.10.11.12
        [[[[[[[[[['''
        numbers = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]
        a.b."c.d.e.f.g.h.i.j.k.l".e = {x = 1, y.z = 2}
        quoted = \"\"\"a"\"\"\"\"
        """
    (folder / "config.toml").write_text(text)
    found = files.read_toml(folder / "config.toml")
    assert (
        len(found["numbers"]) == 11
        and found["system"].endswith("\" [[[[ it's")
        and found["quoted"] == 'a""'
    )
    assert found["a"]["b"] == {"c.d.e.f.g.h.i.j.k.l": {"e": {"x": 1, "y": {"z": 2}}}}


def test_what_is_no_toml_is_named(folder):
    for text in (b"a = ", b"\xff", b"a = 1\na = 2"):
        (folder / "config.toml").write_bytes(text)
        with pytest.raises(ValueError, match=r"config\.toml is not TOML"):
            files.read_toml(folder / "config.toml")
