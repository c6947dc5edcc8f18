"""The house's limits and promises, counted: sizes, imports, licences, paths."""

import ast
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "packages").glob("*/src/mudarrib/**/*.py"))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of(node):
    docstring = ast.get_docstring(node, clean=False) if not isinstance(node, ast.Lambda) else None
    return node.end_lineno - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)


def code_lines(path, node):
    """Lines of a class that are neither blank, nor comments, nor docstrings."""
    documented = set()
    for inner in ast.walk(node):
        if isinstance(inner, (*FUNCTIONS, ast.ClassDef)) and ast.get_docstring(inner):
            text = inner.body[0]
            documented |= set(range(text.lineno, text.end_lineno + 1))
    lines = path.read_text().splitlines()
    numbers = range(node.lineno, node.end_lineno + 1)
    return sum(1 for n in numbers if n not in documented and lines[n - 1].strip() and lines[n - 1].strip()[0] != "#")


def nodes(kind):
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kind):
                yield path, node


def test_there_is_something_to_count():
    assert len({path.parts[path.parts.index("packages") + 1] for path in SOURCES}) == 5


def test_no_file_is_longer_than_400_lines():
    assert not {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 400}


def test_no_function_is_longer_than_50_lines():
    assert not {f"{p.name}:{f.name}": n for p, f in nodes(FUNCTIONS) if (n := lines_of(f)) > 50}


def test_no_class_has_more_than_300_lines_of_its_own():
    assert not {f"{p.name}:{c.name}": n for p, c in nodes(ast.ClassDef) if (n := code_lines(p, c)) > 300}


def test_no_constructor_takes_more_than_15_parameters():
    found = {}
    for path, node in nodes(ast.ClassDef):
        for method in node.body:
            if isinstance(method, FUNCTIONS) and method.name == "__init__":
                n = len(method.args.args) + len(method.args.kwonlyargs) + len(method.args.posonlyargs) - 1
                if n > 15:
                    found[f"{path.name}:{node.name}"] = n
    assert not found


def test_the_loop_is_on_one_screen():
    path = ROOT / "packages/core-loop/src/mudarrib/core_loop/loop.py"
    (run,) = [node for node in ast.parse(path.read_text()).body if isinstance(node, FUNCTIONS) and node.name == "run"]
    assert run.end_lineno - run.lineno + 1 < 60
    assert len(path.read_text().splitlines()) < 80


def test_no_package_hides_the_others():
    assert not list((ROOT / "packages").glob("*/src/mudarrib/__init__.py"))


def test_every_package_is_typed_licensed_and_documented():
    for package in (ROOT / "packages").iterdir():
        (module,) = [path for path in (package / "src" / "mudarrib").iterdir() if path.is_dir()]
        assert (module / "py.typed").is_file(), package.name
        assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes(), package.name
        assert (package / "README.md").is_file() and (package / "CHANGELOG.md").is_file(), package.name


def tracked():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]
    return [ROOT / line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def test_nothing_speaks_of_one_machine():
    private = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/[\w.-]+")
    found = {}
    for path in tracked():
        if path.suffix in {".npz", ".png", ".mo", ".safetensors", ".gz"} or path.name == Path(__file__).name:
            continue
        hits = private.findall(path.read_text(encoding="utf-8", errors="replace"))
        if hits:
            found[str(path.relative_to(ROOT))] = hits[:3]
    assert not found


def loaded_after(statement):
    code = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("from mudarrib.core_loop import TrainingArguments, TrainerCallback; TrainingArguments('x')",
         {"torch", "numpy", "transformers", "accelerate", "datasets"}),
        ("from mudarrib.core_loop import parse_args", {"torch", "transformers"}),
        ("from mudarrib.core_loop import Trainer", {"transformers", "accelerate", "datasets"}),
        ("import mudarrib.launch; [getattr(mudarrib.launch, name) for name in mudarrib.launch.__all__]",
         {"torch", "accelerate", "transformers", "numpy"}),
        ("import mudarrib.optim_extras as m; [getattr(m, name) for name in m.__all__]", {"transformers", "accelerate"}),
        ("import mudarrib.ckpt_hub as m; [getattr(m, name) for name in m.__all__]", {"transformers", "accelerate"}),
    ],
)  # fmt: skip
def test_what_an_import_brings_along(statement, absent):
    assert not loaded_after(statement) & absent


def test_the_arguments_are_a_dataclass_of_the_peers_fields_and_three_more():
    from transformers import TrainingArguments as Theirs

    from mudarrib.core_loop import TrainingArguments as Ours

    theirs, ours = ({field.name: field for field in dataclasses.fields(cls)} for cls in (Theirs, Ours))
    assert set(ours) - set(theirs) == {"background_save", "count_predicted_tokens", "handle_signals"}
    assert not set(theirs) - set(ours)
    default = lambda f: f.default if f.default is not dataclasses.MISSING else f.default_factory()
    assert {name: default(ours[name]) for name in theirs} == {name: default(field) for name, field in theirs.items()}
