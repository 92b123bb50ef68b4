"""Mistakes of a first hour on the command line, and what is to be said of each; the files that some of them name."""

from __future__ import annotations

from pathlib import Path

NOWHERE = "http://127.0.0.1:9"

MISTAKES: dict[str, str] = {
    # what a newcomer did
    f"eval --policy {NOWHERE}/v1": "to evaluate a model behind a URL: --model NAME --base-url URL",
    "eval turngym/MathPython-v1 --policy expert": "did you mean 'turngym/MathPython-v0'?",
    "eval --option dificulty=2 --policy expert": "takes no option 'dificulty'; did you mean 'difficulty'?",
    "eval --policy nowhere/to/be": "'nowhere/to/be' is not a folder; name `tiny`, a run folder, a model folder or",
    "eval --policy folder": "folder has no config.json, so it is no model folder; save the model with",
    "eval --policy expert --tasks cut.jsonl": "cut.jsonl:2 is not JSON in UTF-8: Invalid control character at cha",
    "check nowhere:Guess": "'nowhere:Guess': there is no module nowhere, nor a file of it in",
    "check plain:Guess": "has no Guess",
    "check plain:make": "plain:make cannot be made with {}: make() missing 1 required positional argument: 'size'",
    "play CartPole-v1": "CartPole-v1 makes a CartPoleEnv; turngym supports TextEnv environments only",
    "play --option format=tgs": "unknown tool-call format 'tgs'; did you mean 'tags'?",
    "train --method grpo,rloo": "grpo and rloo both set credit; use one of them: --method grpo or --method rloo",
    "train --method grpo,arpo,aepo": "arpo and aepo both set branching; use one of them: --method grpo,arpo or",
    "train --method grpo:clip_high=0.3,starpo-s": "grpo:clip_high=0.3 or --method starpo-s",
    "train --method grop": "no method is called 'grop'; did you mean 'grpo'?",
    "train --method plain:factory": "the method 'plain:factory': the module plain",
    "train --resume --out nowhere": "nowhere has no config.toml; give a run folder",
    "train --device gpu": "device is 'gpu'; it must be cpu, cuda (or cuda:0, cuda:1, …) or mps",
    "train --env plain:make --option tools=plain:nothing": "plain:make takes no option 'tools'; its options are size",
    "methods grop": "no method is called 'grop'; did you mean 'grpo'?",
    "replay nothing.jsonl": "nothing.jsonl does not exist; name a journal: the trees.jsonl of an evaluation, or",
    "replay good.jsonl": "good.jsonl, line 1: not the header of a journal",
    "audit folder": "folder has no config.toml; give a run folder",
    # and others
    "": "name a command; commands are train, compare, demo",
    "trian": "there is no command 'trian'; did you mean 'train'?",
    "eval --episode 3": "Unrecognized options: --episode, 3; Perhaps you meant: --episodes INT",
    "eval --episodes many": "Error parsing --episodes: invalid literal for int() with base 10: 'many'",
    "eval --episodes 0 --policy expert": "both need to be at least 1",
    "eval --difficulty 9 --policy expert": "difficulty is (9,); choose one or several of 1, 2, 3, 4, 5",
    "eval --split tset --policy expert": "split is 'tset'; the splits are train, valid, test",
    "eval --option max_turns": "--option 'max_turns' is not of the form name=value, such as max_turns=3",
    "eval --option level=none --policy expert": "level is 'none'; it must be one of namespaces, landlock, rlimits-only",
    "eval --option timeout=-1 --policy expert": "timeout is -1",
    "eval --policy expert --tasks fields.jsonl": "has the fields prompt, label; a row needs `problem, answer` or",
    "eval --policy expert --tasks empty.jsonl": "empty.jsonl has no rows; it needs rows with `problem, answer`",
    "eval --policy expert --tasks nothing.jsonl": "task file nothing.jsonl does not exist; give a .jsonl or",
    "eval --policy expert --tasks gsm9k": "unknown task set 'gsm9k'; did you mean 'gsm8k'?",
    "eval --policy expert --out /proc/x": "cannot write to /proc/x (No such file or directory); choose another folder",
    "eval --policy expert --resume": "--resume needs the folder of the evaluation: turngym eval … --out FOLDER",
    "eval --model gpt": "--model is 'gpt', and --base-url is not given; give both",
    f"eval --model gpt --base-url {NOWHERE}/v1 --retries 0 --episodes 1": "check --base-url, and whether the server",
    "eval --chat-template nothing.jinja": "chat_template is 'nothing.jinja', and there is no such file; name a jinja",
    f"eval --server {NOWHERE}": "but the engine is torch; add --engine vllm",
    "eval --engine vlm": "engine is 'vlm'; it must be one of torch, vllm",
    "train mat-python": "there is no recipe 'mat-python'; did you mean 'math-python'?",
    "train key.toml": "key.toml: unknown key 'prompt'; did you mean 'prompts'?",
    "train type.toml": "type.toml: steps is 'many'; it must be of type int",
    "train text.toml": "text.toml is not TOML: Invalid value (at line 1, column 9)",
    "train --lr 0": "lr is 0.0; it must be above 0 and finite",
    "train --method grpo:normalise=std": "no parameter of grpo is called 'normalise'; did you mean 'normalize'?",
    "train --method epo:alpha=-1": "epo: alpha is -1.0; it must be 0 or more",
    "train household": "`turngym warmup RECIPE` makes the one that a recipe starts from",
    "warmup househol": "there is no recipe 'househol'; did you mean 'household'?",
    "warmup turngym/Household-v0 --size tiny": "size is 'tiny'; it must be one of mini, small, medium",
    "warmup turngym/Household-v0 --resume --out folder": "folder holds no warm-up to resume; leave --resume out to",
    "play --task -1": "options['task'] is -1; choose an int from 0 to",
    "check raises:Guess": "importing raises raises ModuleNotFoundError: No module named 'nowhere_to_be'",
    "check plain:X": "name a class that derives from TextEnv, or a function that makes one",
    "compare": "no method is named; name recipes of methods, such as: turngym compare grpo epo",
    "compare grop": "there is no recipe 'grop'; did you mean 'grpo'?",
    "compare grpo --seeds 0": "seeds is 0; a comparison needs at least 1",
    # names in another case, of another kind, or of a thing that there is elsewhere
    "train --method GRPO": "no method is called 'GRPO'; did you mean 'grpo'?",
    "methods Turn_Floor": "no method is called 'Turn_Floor'; did you mean 'turn-floor'?",
    "train Math-Python": "there is no recipe 'Math-Python'; did you mean 'math-python'?",
    "train gsm8k": "there is no recipe 'gsm8k'; did you mean 'gsm8k-python'?",
    "train mine.yaml": "there is no recipe 'mine.yaml'; a recipe is a .toml file whose lines are such as steps = 60",
    "train turngym/Math-v0": "that is an environment: turngym train --env turngym/Math-v0",
    "train shop.py": "name the factory in it: turngym train --env shop.py:make",
    "train shop.py:make": "if it is an environment of your own: turngym train --env shop.py:make",
    "train my_package.shop:Shop --steps 3": "turngym train --env my_package.shop:Shop",
    "train --option tools=nothing": "no tool is called 'nothing'; installed packages declare none; or write module:",
    "compare GRPO": "there is no recipe 'GRPO'; did you mean 'grpo'?",
    "compare grpo --on late-blomer": "there is no recipe 'late-blomer'; did you mean 'late-bloomer'?",
    "compare grpo --on turngym/Math-v1": "unknown environment 'turngym/Math-v1'; did you mean 'turngym/Math-v0'?",
    "diagnose grpo --world Twin": "there is no world 'Twin'; did you mean 'twin'?",
    "claims tny": "there is no table 'tny'; did you mean 'tiny'?",
    # what is said twice, or compared with itself
    "train --option max_turns=2 --option max_turns=3": "--option max_turns is given twice, the second time as 'max_tu",
    "train --method grpo --method epo": "--method is given twice, as 'grpo' and as 'epo'; give it once",
    "train --steps 3 --steps=4": "--steps is given twice, as '3' and as '4'; give it once",
    "train options.toml --difficulty 1 --option difficulty=2": "difficulty is given twice, by --difficulty and by",
    "eval --policy expert --option max_turns=2 max_turns=4": "--option max_turns is given twice, the second time as",
    "eval --policy expert --difficulty 1 --option difficulty=2": "difficulty is given twice, by --difficulty and by",
    "warmup household --option size=tiny --option size=mini": "--option size is given twice, the second time as 'size",
    "compare grpo grpo": "method 'grpo' is named twice; name it once, or give a recipe of its own another name",
    "compare grpo --on math-python --option max_turns=2 --option max_turns=3": "--option max_turns is given twice",
    "compare grpo --on turngym/Math-v0 --env turngym/Math-v0": "both name an environment; give one of them",
    "diagnose epo epo": "method 'epo' is named twice; name it once, or give a recipe of its own another name",
    "serve-search nothing.jsonl": "the corpus nothing.jsonl does not exist or is no file; give a .jsonl or .jsonl.gz",
    "serve-search good.jsonl --token-env NOT_SET": "the environment variable NOT_SET is not set or empty",
    "verify grade": "Unrecognized options: grade; Available subcommands: accounting, ",
}
"""Command lines, each with a part of the one line that refuses it."""

OF_VALUES: dict[str, str] = {
    "train --method grpo,epo:low=3 --out new/run": "epo: high is 2.0; it must be above low, which is 3.0",
    "train --method grpo,arpo:initial=9 --group 4": "arpo: initial is 9; it must be 0 (half of the group) to 4, the",
}
"""Values that do not go together: the method itself refuses them, and needs torch, which takes seconds to import."""

OF_OWN_QUESTIONS: dict[str, str] = {
    # the environment's name
    "check own.py": "own.py is a file; name the factory in it, such as own.py:make",
    "check own.py:mak": "has no mak; did you mean 'make",
    "check owm.py:make": "there is no module owm, nor a file of it in",
    "check my-own.py:make": "Python cannot import 'my-own'; rename it, such as to 'my_own'",
    "check ../own.py:make": "the file is not below the current folder; run this in its folder: cd ..",
    "check broken.py:make": "importing broken raises SyntaxError:",
    "check own.py:ENV": "own:ENV is a QuestionEnv; name a class that derives from TextEnv, or a function that",
    "check own.py:returns_nothing": "returns None; it has to return the environment: does it lack a `return`?",
    # questions
    "check own.py:wrong_key": "tasks[1] has the fields question, anwser; a row needs",
    "check own.py:no_answer": "tasks[1]: field 'answer' is None; it needs text",
    "check own.py:nan_answer": "tasks[1]: field 'answer' is nan; it needs text",
    "check own.py:no_tasks": 'tasks is empty; give a list of {"question": …, "answer": …}',
    "check own.py:columns": "give a list of {",
    "check own.py:same_ids": "tasks[0] and tasks[1] have the id 'x'; give each its own",
    "check own.py:same_questions": "tasks[0] and tasks[1] ask the same question; leave one out, or give each an 'id'",
    "check own.py:no_user": "its last message is of the role 'system'; it needs a question of the user at the end",
    "check own.py:no_file": "task file nothing.csv does not exist; give a .jsonl or .json, .csv, .tsv or .parquet file",
    # graders
    # the rest of what makes it
    "check own.py:system_list": "system is ['a']; it must be a text: system=",
    "check own.py:turns_text": "max_turns is '5'; it must be a whole number, such as 5",
    "check own.py:misspelled": "unexpected keyword argument 'tool'; did you mean 'tools'?",
    "check own.py:no_list": "tools is None; leave it out, or write an empty list: tools=[]",
    "check own.py:tools_dict": "write a list of its values, without names",
    "check own.py:make_later": "own:make_later is async; write it as a plain function: def, not async def",
    "check own.py:the_class": "own:the_class returns the class QuestionEnv; return an instance: QuestionEnv(…)",
    "check own.py:no_grader": "missing 1 required positional argument: 'grader' (",
    "check own.py:one_parameter": "the grader short takes (answer); it is called with two texts: def grade(",
    "check own.py:swapped": "the grader swap takes (gold, answer); the answer comes first, then the gold",
    "check own.py:grader_class": "the grader is the class Exact; make one: Exact()",
    "check own.py:grader_text": "the grader is 'exact'; write a function: def grade(answer, gold)",
    # tools
    "check own.py:tool_without_types": "parameter 'city' of tool bare has no annotation; annotate it, e.g. `",
    "check own.py:tool_without_text": "tool silent has no docstring; its first paragraph is what the agent reads",
    "check own.py:tool_lambda": "tool <lambda> has no docstring",
    "check own.py:tool_class": "Table cannot be made: missing a required argument: 'rows'; write Toolset(Table, …)",
    "check own.py:tool_alone": "write a list, such as tools=[lookup]",
    # files and splits
    "eval turngym/Math-v0 --policy expert --tasks header.csv": "its first line has to name the columns, such as",
    "eval turngym/Math-v0 --policy expert --tasks semicolon.csv": "has the one column 'question;answer'; put commas",
    "eval turngym/Math-v0 --policy expert --tasks object.json": "object.json holds a dict; it needs a list",
    "eval turngym/Math-v0 --policy expert --tasks utf16.csv": "utf16.csv is in UTF-16; save it as UTF-8",
    "eval turngym/Math-v0 --policy expert --tasks gap.csv": "gap.csv:2: field 'answer' is ''; it needs text",
    "eval turngym/Math-v0 --policy expert --tasks fake.parquet": "fake.parquet is no Parquet file that can be read",
    "eval turngym/Math-v0 --policy expert --split all": "split is 'all', which is for tasks of a list or a file;",
    "eval own.py:make --policy observer": "QuestionEnv has no expert() that plays from observations; use `expert`",
    "eval own.py:make --policy expert --split tets": "split is 'tets'; the splits are train, valid, test, all",
    "eval turngym/Math-v0 --policy expert --tasks blank.json": "blank.json is empty; it needs a list, [{",
    "eval turngym/Math-v0 --policy expert --tasks plain.txt": "only .json, .csv, .tsv and .parquet files are read as",
    "eval turngym/Math-v0 --policy expert --tasks ids.csv": "ids.csv:2 and ids.csv:3 have the id 'x'; give each its",
    "train --env turngym/Math-v0 --tasks three.csv --prompts 1": "three.csv for valid; --option holdout=0.",
    "eval own.py:make --policy expert --split test": "its 3 tasks are too few to hold some out for test",
}
"""Mistakes with questions, tools, graders and files of one's own."""

_OWN = '''
from turngym.envs import QuestionEnv

WARM = {"Oslo": -3, "Rome": 14, "Lima": 19}
ROWS = [{"question": f"How warm is {city}?", "answer": WARM[city]} for city in WARM]


def lookup(city: str) -> str:
    """Return the temperature of a city."""
    return "-3"


def bare(city):
    """Return the temperature of a city."""


def silent(city: str) -> str:
    return "-3"


class Table:
    def __init__(self, rows):
        self.rows = rows


def grade(answer, gold):
    return answer == gold


def short(answer):
    return True


def swap(gold, answer):
    return answer == gold


class Exact:
    def grade(self, *, completion, gold):
        return completion == gold


def of(*rows, grader=grade, tools=()):
    return QuestionEnv([*ROWS[:1], *rows], grader, tools)


ENV = of()
make = lambda: QuestionEnv(ROWS, grade, [lookup])
returns_nothing = lambda: None
wrong_key = lambda: of({"question": "Bonn?", "anwser": 8})
no_answer = lambda: of({"question": "Bonn?", "answer": None})
nan_answer = lambda: of({"question": "Bonn?", "answer": float("nan")})
no_tasks = lambda: QuestionEnv([], grade)
columns = lambda: QuestionEnv({"question": ["Bonn?"], "answer": [8]}, grade)
same_ids = lambda: QuestionEnv([{**row, "id": "x"} for row in ROWS], grade)
same_questions = lambda: of(ROWS[0])
no_user = lambda: of({"prompt": [{"role": "system", "content": "Hi"}], "reward_model": {"ground_truth": "1"}})
no_file = lambda: QuestionEnv("nothing.csv", grade)
no_grader = lambda: QuestionEnv(ROWS)
one_parameter = lambda: of(grader=short)
swapped = lambda: of(grader=swap)
grader_class = lambda: of(grader=Exact)
grader_text = lambda: of(grader="exact")
tool_without_types = lambda: of(tools=[bare])
tool_without_text = lambda: of(tools=[silent])
tool_lambda = lambda: of(tools=[lambda city: "-3"])
tool_class = lambda: of(tools=[Table])
tool_alone = lambda: of(tools=lookup)
system_list = lambda: QuestionEnv(ROWS, grade, system=["a"])
turns_text = lambda: QuestionEnv(ROWS, grade, [lookup], max_turns="5")
misspelled = lambda: QuestionEnv(ROWS, grade, tool=[lookup])
no_list = lambda: QuestionEnv(ROWS, grade, tools=None)
tools_dict = lambda: QuestionEnv(ROWS, grade, tools={"lookup": lookup})
the_class = lambda: QuestionEnv


async def make_later():
    return of()
'''

FILES = {
    "own.py": _OWN,
    "broken.py": "def make(:\n",
    "header.csv": "How warm is Oslo?,-3\n",
    "semicolon.csv": "question;answer\na?;1\n",
    "object.json": '{"train": [{"question": "a?", "answer": "1"}]}',
    "three.csv": "question,answer\n1+1?,2\n2+2?,4\n3+3?,6\n",
    "blank.json": "",
    "plain.txt": "a? 1\n",
    "ids.csv": "id,question,answer\nx,1+1?,2\nx,2+2?,4\n",
    "gap.csv": "question,answer\na?,\n",
    "fake.parquet": "PAR1",
    "good.jsonl": '{"problem": "1+1?", "answer": "2"}\n',
    "cut.jsonl": '{"problem": "1+1?", "answer": "2"}\n{"problem": "2+1?", "ans\n',
    "fields.jsonl": '{"prompt": "1+1?", "label": "2"}\n',
    "empty.jsonl": "",
    "key.toml": "prompt = 3\n",
    "type.toml": 'steps = "many"\n',
    "text.toml": "steps = \n",
    "options.toml": 'difficulty = [1]\noption = ["max_turns=3"]\n',
    "raises.py": "import nowhere_to_be\n",
    "plain.py": "X = 1\n\n\ndef make(size):\n    pass\n",
}


def write_files(folder: Path) -> None:
    """Write the files that mistakes name, and an empty folder called `folder`."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "utf16.csv").write_text("question,answer\na?,1\n", "utf-16")
    (folder / "folder").mkdir()
