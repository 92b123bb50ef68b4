"""What `make docs` adds to the pages: the text files of the root, and the help of every command."""

import contextlib
import io
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from turngym import __main__ as cli

ROOT = Path(__file__).parent.parent
OF_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Make pages of the text files of the root."""
    for name in OF_ROOT:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mend links between the root and `docs`, and write the help of each command below its heading."""
    if page.file.src_uri in OF_ROOT:
        return markdown.replace("](docs/", "](")
    for name in OF_ROOT:
        markdown = markdown.replace(f"](../{name}", f"]({name}")
    if page.file.src_uri == "commands.md":
        markdown = re.sub(
            r"^## `(.+)`\n", lambda found: f"{found[0]}\n{help_of(found[1])}", markdown, flags=re.M
        )
    return markdown


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark short pieces of code, which are not broken across lines: a browser would break `--lr` behind a hyphen."""
    return re.sub(r"<code>([^<]{1,32})</code>", r'<code class="short">\1</code>', html)


def help_of(command: str) -> str:
    """Return what `turngym COMMAND --help` prints, as a block of Markdown."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        cli.main([command, "--help"])
    return f"```text\n{out.getvalue().strip()}\n```\n"
