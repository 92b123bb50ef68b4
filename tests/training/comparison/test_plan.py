"""`turngym compare`, on runs of two steps: planned whole, made in turn, kept, gone on with."""

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turngym import __main__ as cli
from turngym.agents.cli import terminal
from turngym.agents.models.resolve import TINY
from turngym.tests.support.comparisons import contents
from turngym.training.comparison import outcomes as report
from turngym.training.comparison import plan as planning
from turngym.training.comparison.plan import REPORTS
from turngym.training.loop.trainer import Loop
from turngym.training.runs.config import from_run, read_recipe
from turngym.training.runs.run import execute, prepare

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SMALL = """
env = "turngym/Math-v0"
difficulty = [1]
steps = 2
prompts = 2
group = 2
max_tokens = 8
eval_every = 2
eval_tasks = 3
seed = 5
"""
Turngym = Callable[..., tuple[int, str, str]]


@pytest.fixture
def turngym(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Turngym:
    """Run a command line in a folder that holds the recipe `small.toml`: exit status, standard output and error."""
    monkeypatch.setattr(terminal.console, "width", 160)
    monkeypatch.setattr(report, "save", lambda figure, path: path.touch())
    monkeypatch.setattr(report, "draw", lambda found, idle: None)
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL)

    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(
                [str(arg) for arg in args]
                + (["--final", "8"] if args[0] == "compare" and "--final" not in args else [])
            )
        return left.value.code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of two methods with two seeds."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "small.toml").write_text(SMALL)
    with pytest.raises(SystemExit) as left:
        cli.main(
            [
                "compare",
                "grpo",
                "rloo",
                "--on",
                str(folder / "small.toml"),
                "--seeds",
                "2",
                "--out",
                str(folder / "c"),
                "--final",
                "8",
            ]
        )
    assert left.value.code == 0
    return folder / "c"


def weights(run: Path) -> bytes:
    return (
        run / "checkpoints" / "step-000002" / "adapter" / "adapter_model.safetensors"
    ).read_bytes()


def told(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "compare.json").read_text())


# --- what is made


def test_each_run_is_an_ordinary_one_and_the_same_as_alone(made, tmp_path):
    """Nothing of the runs before it, in the same process, is left in it."""
    runs = {path.relative_to(made).as_posix() for path in made.glob("*/*")}
    assert runs == {f"{method}/seed-{seed}" for method in ("grpo", "rloo") for seed in (5, 6)}
    config = from_run(made / "rloo" / "seed-6")
    assert (config.method, config.seed, config.env, config.schedule.steps) == (
        "rloo",
        6,
        "turngym/Math-v0",
        2,
    )
    for _ in execute(prepare(config.changed(out=str(tmp_path)))):
        pass
    assert (
        weights(tmp_path) == weights(made / "rloo" / "seed-6") != weights(made / "rloo" / "seed-5")
    )


def test_the_folder_holds_table_numbers_and_picture(made):
    assert {path.name for path in made.iterdir() if path.is_file()} == {
        *REPORTS,
        "report.html",
        "plan.json",
    }
    data = told(made)
    assert (data["seeds"], data["reference"]) == ([5, 6], "grpo")
    assert {name: one["finished"] for name, one in data["results"].items()} == {
        "grpo": [5, 6],
        "rloo": [5, 6],
    }
    assert [values["method"] for values in data["methods"].values()] == ["grpo", "rloo"]
    assert data["shared"]["env"] == "turngym/Math-v0" and "method" not in data["shared"]
    assert (made / "compare.png").read_bytes().startswith(b"\x89PNG")
    table = (made / "compare.md").read_text()
    assert "| grpo | 2/2 |" in table and "| rloo | 2/2 |" in table and "](compare.png)" in table


def test_numbers_are_those_of_the_run_folders(made):
    run = told(made)["results"]["grpo"]["runs"]["6"]
    lines = [
        json.loads(x) for x in (made / "grpo" / "seed-6" / "metrics.jsonl").read_text().splitlines()
    ]
    summary = json.loads((made / "grpo" / "seed-6" / "summary.json").read_text())
    assert run["spent"]["tokens"] == summary["tokens"] == sum(line["tokens"] for line in lines[1:])
    assert [found["success"] for found in run["validations"]] == [
        summary[at]["success"] for at in ("before", "after")
    ]
    assert run["validations"][0]["episodes"] == 3
    assert run["entropy_by_turn"]["0"]["mean"] == pytest.approx(
        sum(x["entropy_turn/0"] for x in lines[1:]) / 2
    )


def test_finished_runs_are_kept_and_more_methods_and_seeds_may_come(
    made, tmp_path, turngym, monkeypatch
):
    folder = shutil.copytree(made, tmp_path / "c")
    for path in folder.glob("*/*/config.toml"):
        path.write_text(path.read_text().replace(str(made), "c"))
    taken, step = [], Loop._step
    monkeypatch.setattr(
        Loop, "_step", lambda self, at: taken.append(str(self.folder)) or step(self, at)
    )
    args = [
        "compare",
        "grpo",
        "rloo",
        "reinforce",
        "--on",
        "small.toml",
        "--seeds",
        "1",
        "--out",
        "c",
        "--resume",
    ]
    status, out, err = turngym(*args)
    assert status == 0, err
    assert taken == ["c/reinforce/seed-5"] * 2
    assert re.search(
        r"1/3  grpo, seed 5: held-out success .* in 2 steps, .* tokens, .*, kept\n", out
    )
    assert re.search(r"3/3  reinforce, seed 5: held-out success .* tool calls, \d+\.\d min\n", out)
    assert "Held-out success" in out and "c/compare.png" in out
    assert told(folder)["results"]["reinforce"]["finished"] == [5]


# --- interruption


def test_an_interrupted_comparison_says_how_to_go_on_and_goes_on(turngym, monkeypatch, made):
    taken, step = [], Loop._step

    def interrupted(self: Loop, at: Any) -> Any:
        taken.append(str(self.folder))
        if len(taken) == 4:
            raise KeyboardInterrupt
        return step(self, at)

    monkeypatch.setattr(Loop, "_step", interrupted)
    status, out, _ = turngym(
        "compare", "grpo", "rloo", "--on", "small.toml", "--seeds", "1", "--out", "c"
    )
    assert status == 130
    way = re.search(r"interrupted; continue with: turngym (.*)\n", out)
    assert (
        way and way[1] == "compare grpo rloo --on small.toml --seeds 1 --final 8 --out c --resume"
    )
    assert told(Path("c"))["results"]["rloo"]["unfinished"] == {
        "5": "not begun"
    }  # when grpo had finished
    status, out, err = turngym(*way[1].split())
    assert status == 0, err
    assert taken == ["c/grpo/seed-5"] * 2 + ["c/rloo/seed-5"] * 3
    assert weights(Path("c/rloo/seed-5")) == weights(made / "rloo" / "seed-5")
    assert told(Path("c"))["results"]["rloo"]["unfinished"] == {}


def test_a_run_that_comes_to_nothing_is_named_and_the_others_go_on(turngym, monkeypatch):
    from turngym.training.loop.trainer import Refusals

    step = Loop._step

    def refused(self: Loop, at: Any) -> Any:
        if "grpo" in str(self.folder):
            raise Refusals("5 steps in a row had no update")
        return step(self, at)

    monkeypatch.setattr(Loop, "_step", refused)
    status, out, _ = turngym(
        "compare", "grpo", "rloo", "--on", "small.toml", "--seeds", "1", "--out", "c"
    )
    assert status == 0 and "grpo, seed 5 failed: 5 steps in a row had no update" in out
    results = told(Path("c"))["results"]
    assert results["grpo"]["finished"] == [] and results["grpo"]["unfinished"] == {
        "5": "0 steps taken"
    }
    assert results["rloo"]["finished"] == [5] and results["rloo"]["ahead_of_reference"] is None
    assert "| grpo | 0/1 | – |" in Path("c/compare.md").read_text()


def test_a_token_budget_ends_every_run(turngym):
    args = [
        "--on",
        "small.toml",
        "--seeds",
        "1",
        "--steps",
        "50",
        "--token-budget",
        "40",
        "--out",
        "c",
    ]
    assert turngym("compare", "grpo", "rloo", *args)[0] == 0
    for one in told(Path("c"))["results"].values():
        run = one["runs"]["5"]["spent"]
        assert run["tokens"] >= 40 and run["steps"] < 50
    assert "50 steps, at most 40 tokens" in Path("c/compare.md").read_text()
    status, _, err = turngym("compare", "grpo", *args[:-3], "80", *args[-2:], "--resume")
    assert (
        status == 2
        and "token_budget is 80, but the run in c/grpo/seed-5 was made with 40; use the same value"
        in err
    )


GUESS = """
from turngym.envs import Reply, StopReason, TextEnv

class Guess(TextEnv):
    def on_reset(self, rng, options):
        self.secret = str(rng.integers(1, 8))
        return "Guess a number from 1 to 7."

    def on_step(self, text):
        return Reply("over", float(text == self.secret), StopReason.ANSWERED)
"""


def test_methods_are_compared_on_an_environment_of_ones_own(turngym, monkeypatch):
    Path("compared_guess.py").write_text(GUESS)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    args = ["compare", "grpo", "rloo", "--on", "small.toml", "--seeds", "1", "--out", "c"]
    try:
        status, out, err = turngym(*args, "--env", "compared_guess:Guess")
        assert status == 0, err
        assert "as they are for the environment turngym/Math-v0: difficulty" in out
        assert told(Path("c"))["shared"]["env"] == "compared_guess:Guess"
        assert {name: one["finished"] for name, one in told(Path("c"))["results"].items()} == {
            "grpo": [5],
            "rloo": [5],
        }
        assert 'env = "compared_guess:Guess"' in Path("c/rloo/seed-5/config.toml").read_text()
        # A file may not choose whose code runs; the command may, and goes on with what it made.
        Path("own.toml").write_text(
            SMALL.replace("turngym/Math-v0", "compared_guess:Guess").replace("difficulty", "#")
        )
        status, _, err = turngym("compare", "grpo", "--on", "own.toml", "--seeds", "1")
        assert status == 2 and "env=compared_guess:Guess" in err and err.count("\n") == 1
        status, out, err = turngym(*args, "--env", "compared_guess:Guess", "--resume")
        assert status == 0 and out.count(", kept") == 2, err
    finally:
        sys.modules.pop("compared_guess", None)


def test_methods_are_tuned_on_other_seeds_and_judged_at_their_best(turngym, monkeypatch, tmp_path):
    """Several at a time: the numbers are those of runs one after another."""
    Path("tune.toml").write_text(
        'seeds = [90]\n[settings]\ngrpo = ["grpo:clip_high=0.3", "grpo"]\nrloo = ["rloo", "reinforce"]\n'
    )
    args = [
        "compare",
        "grpo",
        "rloo",
        "--on",
        "small.toml",
        "--tune",
        "tune.toml",
        "--effect",
        "20",
        "--sd",
        "2",
    ]
    status, out, err = turngym(*args, "--seeds", "2", "--out", "c", "--workers", "2")
    assert status == 0, err
    assert "a difference of 20 points (sd 2, 1 tests) is seen (p ≤ 0.05) with power" in out
    assert "grpo is judged as grpo:clip_high=0.3: grpo:clip_high=0.3 0.0 %, grpo 0.0 %" in out
    plan, found = json.loads(Path("c/plan.json").read_text()), told(Path("c"))
    assert plan["seeds"] == found["seeds"] == [5, 6] and plan["tuned"]["rloo"]["seeds"] == [90]
    assert plan["tuned"]["grpo"] == {
        "chosen": "grpo:clip_high=0.3",
        "success": {"grpo:clip_high=0.3": 0.0, "grpo": 0.0},
        "seeds": [90],
    }
    assert {path.parent.name for path in Path("c/tune").glob("*/seed-90")} == {
        "grpo", "grpo:clip_high=0.3", "rloo", "reinforce"
    }  # fmt: skip
    final = found["results"]["rloo"]["final"]
    assert (final["solved"], final["of"], final["p_solved"]) == (0, 2, 1.0)
    assert final["runs"]["5"]["sampled"]["episodes"] == 8 and final["ahead"]["success"]["n"] == 2
    assert "## Final validation" in Path("c/compare.md").read_text()
    assert turngym(*args, "--seeds", "2", "--out", "c", "--resume")[0] == 0
    assert told(Path("c")) == found
    whole = contents(Path("c").resolve())
    begun = Path("c/rloo/seed-5")
    (begun / "final.json").unlink()
    leave_temporaries(Path("c"), "compare.md", "compare.json", "plan.json")
    leave_temporaries(begun, "effect.json", "final.json", "metrics.jsonl", "summary.json")
    assert turngym(*args, "--seeds", "2", "--out", "c", "--resume")[0] == 0
    assert contents(Path("c").resolve()) == whole


def leave_temporaries(folder, *names):
    """Leave what a process leaves that is killed while it writes these files."""
    for name in names:
        (folder / f".{name}.0123456789abcdef.tmp").touch()


# --- mistakes, before anything is made

MISTAKES = [
    ([], "no method is named; name recipes of methods, such as: turngym compare grpo epo"),
    (["turn-flor"], "there is no recipe 'turn-flor'; did you mean 'turn-floor'?"),
    (["grpo", "nowhere.toml"], "there is no recipe 'nowhere.toml'"),
    (["grpo,epoo"], "grpo,epoo: no method is called 'epoo'; did you mean 'epo'?"),
    (["grpo", "epo", "grpo"], "method 'grpo' is named twice"),
    (
        ["grpo", "--on", "math-pyton"],
        "there is no recipe 'math-pyton'; did you mean 'math-python'?",
    ),
    (["grpo", "--seeds", "0"], "seeds is 0; a comparison needs at least 1"),
    (["grpo", "--steps", "0"], "steps is 0; it must be at least 1"),
    (["grpo", "--token-budget", "-1"], "token_budget is -1; it must be 0 or more"),
    (["grpo", "--eval-every", "0"], "eval_every is 0; it must be at least 1"),
    (["grpo", "--policy", "./nowhere"], "'nowhere' is not a folder"),
    (
        ["math-python"],
        "the recipe 'math-python' sets env, difficulty, option, policy, steps, eval_every, which all",
    ),
    (["grpo", "clash.toml"], "clash: grpo and dapo both set credit"),
    (["grpo", "odd.toml"], "odd: no method is called 'epoo'; did you mean 'epo'?"),
    *[
        (
            ["grpo", "--on", name],
            f"there is no runs/warm/{name}, from which the recipe '{name}' starts; make it: turngym ",
        )
        for name in ("household", "search")
    ],
    (["grpo", "wild.toml"], "wild.toml: unknown key 'metod'; did you mean 'method'?"),
    (
        ["grpo", "--out", "full"],
        "full is not empty; continue with --resume, or choose another folder with --out",
    ),
    (
        ["grpo", "--resume"],
        "--resume needs the folder of what is to be resumed: turngym compare … --out FOLDER",
    ),
    (
        ["grpo", "--resume", "--out", "nowhere"],
        "nowhere holds nothing to resume; leave --resume out to start",
    ),
    (["grpo", "--out", "small.toml"], "cannot write to small.toml"),
    (
        ["grpo", "--effect", "3"],
        "--effect needs to know how much seeds differ: --sd POINTS, or --earlier FOLDER",
    ),
    (
        ["grpo", "--sd", "3"],
        "--sd and --earlier plan seeds for an effect; name it: --effect POINTS",
    ),
    (
        ["grpo", "rloo", "--effect", "1", "--sd", "30"],
        "a difference of 1 (sd 30) takes more than 64 seeds to see",
    ),
    (
        ["grpo", "--effect", "nan", "--sd", "3"],
        "effect is nan; it is in points, above 0 and at most 100",
    ),
    (
        ["grpo", "--final", "3"],
        "final is 3; give at least 8 episodes, or 0 for no final validation",
    ),
    (["grpo", "--against", "epo"], "--against is 'epo', which is not among grpo; name it"),
    (["grpo", "--workers", "0"], "workers is 0; there must be at least 1"),
    (
        ["grpo", "rloo", "--tune", "uneven.toml"],
        "different numbers of settings (grpo 1, rloo 2); give each as many",
    ),
    (
        ["grpo", "--tune", "uneven.toml"],
        "uneven.toml and the command differ in rloo; give each method a list",
    ),
    (
        ["grpo", "--tune", "judged.toml"],
        "judged.toml: the seeds [5] are judged, too; choose others",
    ),
    (
        ["grpo", "--tune", "foreign.toml"],
        "names 'grpo,mine:factory' of another package; a file cannot choose that",
    ),
    (
        ["grpo", "--tune", "odd.toml"],
        "odd.toml needs `seeds`, a list, and `settings`, a table of lists",
    ),
]


@pytest.mark.parametrize(("args", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(turngym, tmp_path, args, message):
    Path("clash.toml").write_text('method = "grpo,dapo"\n')
    Path("odd.toml").write_text('method = "grpo,epoo"\n')
    Path("wild.toml").write_text('metod = "grpo"\n')
    Path("uneven.toml").write_text(
        'seeds = [9]\n[settings]\ngrpo = ["grpo"]\nrloo = ["rloo", "grpo"]\n'
    )
    Path("judged.toml").write_text('seeds = [5]\n[settings]\ngrpo = ["grpo"]\n')
    Path("foreign.toml").write_text('seeds = [9]\n[settings]\ngrpo = ["grpo,mine:factory"]\n')
    Path("full").mkdir()
    Path("full/notes").touch()
    before = {path.name for path in tmp_path.rglob("*")}
    status, out, err = turngym(
        "compare", *args, *([] if "--on" in args else ["--on", "small.toml"])
    )
    assert (
        (status, out) == (2, "")
        and err.startswith("error: ")
        and message in err
        and err.count("\n") == 1
    )
    assert {path.name for path in tmp_path.rglob("*")} == before


def test_several_processes_do_not_write_one_comparison(turngym, monkeypatch):
    launch = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in launch.items():
        monkeypatch.setenv(name, value)
    status, _, err = turngym("compare", "grpo", "--on", "small.toml")
    assert (
        status == 2
        and "2 processes would write one comparison; start it once, without torchrun" in err
    )


def test_methods_that_contradict_each_other_are_refused_before_anything_is_built(
    turngym, monkeypatch
):
    Path("clash.toml").write_text('method = "grpo,dapo"\n')
    monkeypatch.setattr(
        planning.run, "prepare", lambda config: pytest.fail(f"{config.method} is prepared")
    )
    status, _, err = turngym("compare", "grpo", "clash.toml", "--on", "small.toml")
    assert status == 2 and "both set credit" in err


@pytest.mark.parametrize("recipe", ["household", "search"])
def test_a_recipe_that_starts_from_a_warm_policy_is_compared_on(turngym, recipe):
    shutil.copytree(TINY, f"runs/warm/{recipe}")
    plan = planning.plan(["grpo", "arpo"], recipe, 1, {"steps": 2})
    assert {config.policy for config in plan.methods.values()} == {f"runs/warm/{recipe}"}
    assert [config.method for config in plan.methods.values()] == ["grpo", "grpo,arpo"]


def test_a_run_with_another_config_is_not_kept(turngym, made):
    args = ["compare", "grpo", "--on", "small.toml", "--seeds", "1", "--out", made, "--resume"]
    Path("small.toml").write_text(SMALL + "lr = 0.002\n")
    status, _, err = turngym(*args)
    assert (
        status == 2 and f"lr is 0.002, but the run in {made}/grpo/seed-5 was made with 0.001" in err
    )
    Path("small.toml").write_text(SMALL)
    status, _, err = turngym(*args, "--steps", "3")
    assert status == 2 and "steps is 3, but the run in" in err


def test_a_missing_matplotlib_is_named_with_the_extra(turngym, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        planning, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    status, out, err = turngym("compare", "grpo", "--on", "small.toml")
    assert (
        (status, out) == (2, "")
        and "matplotlib is not installed" in err
        and 'pip install "turngym[report]"' in err
    )


# --- plans


def test_methods_share_all_of_the_base_but_what_they_set(turngym):
    Path("mine.toml").write_text('method = "grpo,epo:alpha=0.5"\nupdates = 3\nlr = 0.01\n')
    plan = planning.plan(["aepo", "mine.toml"], "small.toml", 3, {"steps": 9})
    base = read_recipe("small.toml").changed(steps=9)
    assert plan.methods == {
        "aepo": base.changed(method="grpo,aepo", updates=2),
        "mine": base.changed(method="grpo,epo:alpha=0.5", updates=3, lr=0.01),
    }
    assert [(trial.method, trial.config.seed) for trial in plan.trials] == [
        (method, seed) for seed in (5, 6, 7) for method in ("aepo", "mine")
    ]
    assert (plan.reference, plan.folder) == ("aepo", Path("runs/compare"))
    assert planning.plan(["epo", "grpo"], "small.toml", 1, {}).reference == "grpo"
    themselves = planning.plan(
        ["grpo,turn-floor", "grpo,epo:alpha=0.5"], "small.toml", 1, {}
    ).methods
    assert [config.method for config in themselves.values()] == [
        "grpo,turn-floor",
        "grpo,epo:alpha=0.5",
    ]


def test_without_a_folder_the_first_free_one_is_taken(turngym):
    folders = []
    for _ in range(3):
        folders.append(planning.plan(["grpo"], "small.toml", 1, {}).folder)
        folders[-1].mkdir(parents=True)
    assert folders == [Path("runs/compare"), Path("runs/compare-2"), Path("runs/compare-3")]
