"""Build the reference of every module from the docstrings; any warning ends with exit code 1.

    uv run --group docs scripts/build_docs.py [--out build/docs]

Open build/docs/index.html afterwards: no server is needed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import ForwardRef

from pdoc import doc, render


def load_modules(package: str) -> list[ModuleType]:
    """Import a package and all of its modules, including names that are otherwise loaded on first use."""
    root = importlib.import_module(package)
    names = [found.name for found in pkgutil.walk_packages(root.__path__, f"{package}.")]
    modules = [root, *(importlib.import_module(name) for name in names)]
    for module in modules:
        for name in getattr(module, "__all__", ()):
            if hasattr(module, name):  # pdoc reports missing names
                setattr(module, name, getattr(module, name))
        for kind in vars(module).values():
            for annotation in getattr(getattr(kind, "__new__", None), "__annotations__", {}).values():
                if isinstance(annotation, ForwardRef):  # of a NamedTuple, which does not record the module of its names
                    annotation.__forward_module__ = kind.__module__
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                _say_where_fields_are_from(kind)
    return modules


def _say_where_fields_are_from(kind: type) -> None:
    """Resolve the annotations of inherited fields, which a constructor holds as text, in the module of their base class."""
    given = inspect.get_annotations(kind.__init__)
    for base in kind.__mro__:
        for name, text in inspect.get_annotations(base).items():
            if isinstance(text, str) and given.get(name) == text:
                given[name] = ForwardRef(text, module=base.__module__)
    kind.__init__.__annotations__ = given


def build(package: str, out: Path) -> list[str]:
    """Write one page for each module of a package.

    Args:
        package: dotted name of the package.
        out: folder of the pages.

    Returns:
        One text for each warning about docstrings, annotations or `__all__`.
    """
    modules = load_modules(package)
    render.configure(docformat="google", footer_text=f"{package} {getattr(modules[0], '__version__', '')}".strip())
    described = {module.__name__: doc.Module(module) for module in modules}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name, module in described.items():
            page = out / f"{name.replace('.', '/')}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(render.html_module(module, described), encoding="utf-8")
        (out / "index.html").write_text(render.html_index(described), encoding="utf-8")
        (out / "search.js").write_text(render.search_index(described), encoding="utf-8")
    return [str(warning.message) for warning in caught]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/docs"), help="folder of the pages (default: %(default)s)")
    out = parser.parse_args(arguments).out
    complaints = build("teacher_student", out)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"{len(list(out.rglob('*.html')))} pages in {out}, {len(complaints)} warnings")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
