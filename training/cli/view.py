"""The command `turngym view`."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ...agents.cli.terminal import Shown, console, mistakes
from ...tools.progress import Progress

PICTURES = (".png", ".svg")


@dataclass(frozen=True)
class View(Shown):
    """Show runs, evaluations and comparisons: a page of HTML, a picture, or a page that follows a run."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN …]")]
    """Folders of runs, evaluations or comparisons. Several are shown together."""
    out: Path | None = None
    """File to write: `.html`, or `.png` or `.svg` for a picture of one run. By default `report.html`, in the folder if
    there is one folder, and else in the working directory."""
    text: bool = False
    """Print to the terminal instead: curves, entropy by turn and step, methods, failed episodes, incidents."""
    live: bool = False
    """Serve the page on this machine and follow what is written, until interrupted."""
    port: int = 0
    """Port of `--live`; 0 chooses a free one."""
    allow_host: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """One more name under which a browser asks `--live`, as that of a proxy in front of it; may be given again."""

    def run(self) -> int:
        folders = list(self.folders)
        with mistakes():
            if not folders:
                raise ValueError("name a folder: turngym view RUN")
            if self.text and (self.live or self.out is not None):
                raise ValueError(
                    "--text prints, and --live and --out do something else; give one of them"
                )
            if self.live and self.out is not None:
                raise ValueError(
                    f"--out is {self.out}, and --live writes no file; leave one of them out"
                )
            if self.text:
                from ..report.data import read
                from ..report.text import show

                with self.shown(), Progress("reading"):
                    found = read(folders)
                show(found, console)
            elif self.live:
                from ..report.page import serve

                with serve(folders, self.port, self.allow_host) as url:
                    console.print(f"{url}  (Ctrl-C ends it)", soft_wrap=True, markup=False)
                    threading.Event().wait()
            else:
                with self.shown(), Progress("drawing"):
                    self._write(
                        folders,
                        self.out or (folders[0] if len(folders) == 1 else Path()) / "report.html",
                    )
        return 0

    def _write(self, folders: list[Path], out: Path) -> None:
        from ..report.page import write_page
        from ..report.picture import write_picture

        if out.suffix not in (".html", *PICTURES):
            raise ValueError(f"--out is {out}; it must end in .html, .png or .svg")
        found = (write_page if out.suffix == ".html" else write_picture)(folders, out)
        for run in found.runs:
            for note in run.notes:
                console.print(f"{run.name}: {note}", style="yellow", markup=False, soft_wrap=True)
        console.print(f"written: {out}", markup=False, soft_wrap=True)
