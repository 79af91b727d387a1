"""What is loaded is data: no unpickling, no code from files, anywhere in the package."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import teacher_student

PACKAGE = Path(teacher_student.__file__).parent
OUTSIDE = [PACKAGE.parent / "scripts", PACKAGE.parent / "research"]
UNPICKLERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "jsonpickle", "numpy.lib.npyio"}
FORBIDDEN = {
    *("torch.load", "torch.jit.load", "torch.hub.load", "torch.package", "joblib.load", "pandas.read_pickle", "pd.read_pickle"),
    *("yaml.load", "yaml.full_load", "yaml.unsafe_load", "yaml.load_all", "yaml.unsafe_load_all"),
    *("eval", "exec", "compile", "__import__", "runpy.run_path"),
}
CALLS_WITH_PICKLE = {"np.load", "np.save", "np.savez", "numpy.load", "numpy.save"}


def files() -> list[Path]:
    return sorted(path for folder in (PACKAGE, *OUTSIDE) for path in folder.rglob("*.py"))


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(source: str) -> list[str]:
    """Everything in a file that could run what a file holds."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in UNPICKLERS]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names if node.module in UNPICKLERS]
            found += [name for alias in node.names if (name := f"{node.module}.{alias.name}") in FORBIDDEN]
        elif isinstance(node, ast.Call):
            name, keywords = dotted(node.func), {keyword.arg: keyword.value for keyword in node.keywords}
            never = isinstance(flag := keywords.get("allow_pickle"), ast.Constant) and flag.value is False
            if name in FORBIDDEN or name.endswith(".load_from_checkpoint") or "ckpt_path" in keywords:
                found.append(name)
            elif (name in CALLS_WITH_PICKLE or "allow_pickle" in keywords) and not never:
                found.append(f"{name} without allow_pickle=False")
    return found


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_nothing_is_unpickled(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from dill import loads",
        "from torch import load",
        "torch.load(path)",
        "torch.load(path, weights_only=True)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.lib.format.read_array(file, allow_pickle=flag)",
        "joblib.load(path)",
        "yaml.load(text, Loader=yaml.Loader)",
        "Student.load_from_checkpoint(path)",
        "trainer.fit(model, ckpt_path=path)",
        "eval(text)",
    ],
)
def test_a_file_that_would_is_found(source: str) -> None:
    assert faults(source)
