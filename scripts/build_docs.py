"""Build the documentation site; any warning ends with exit code 1. It is also the hook that mkdocs.yml names.

    uv run --group docs scripts/build_docs.py [--out build/docs]

Open build/docs/index.html afterwards. Pages open without a server; the search wants one (python -m http.server). Pages that are
kept elsewhere are made here: the README as the first page, CONTRIBUTING and CHANGELOG, the notebooks, and the reference, with a
page for each promoted name and for each package.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib
import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = "teacher_student"
FORMULAS = ("tight_guarantee.md", "errata.md")
"""Pages whose x^a, x^(a) and x_a outside code are formulas."""

_PLACES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/owners/README.md": "owners.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")
_CODE = re.compile(r"(```.*?```|`[^`]*`|\]\([^)]*\))", re.DOTALL)


def pages() -> Iterator[tuple[str, str]]:
    """Yield path and Markdown of each page that is kept outside docs/, or made from docstrings."""
    for source, page in _PLACES.items():
        yield page, _relinked((ROOT / source).read_text(encoding="utf-8"), "")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        yield f"notebooks/{path.stem}.md", _relinked(_notebook(path), "notebooks/")
    yield from reference()


def reference() -> Iterator[tuple[str, str]]:
    """Yield the index of the reference, a page for each promoted name, and one for each package with its modules."""
    package = importlib.import_module(PACKAGE)
    rooms = sorted(path.parent.name for path in (ROOT / PACKAGE).glob("*/__init__.py"))
    names = [name for name in package.__all__ if not name.startswith("__")]
    filters = ["!^_", f"!^({'|'.join(names)})$"]  # promoted names have pages of their own
    lines = ["# Reference", "", "What most users need is in the package itself (`import teacher_student as ts`):", ""]
    for name in names:
        home = f"{getattr(getattr(package, name), '__module__', PACKAGE)}.{name}"
        if home.startswith("builtins"):
            home = f"{PACKAGE}.labels.{name}"
        lines.append(f"- [`{name}`]({name}.md)")
        longer = sum(name.lower() in other.lower() for other in names)  # the shortest of similar names comes first
        heading = f"---\ntitle: {name}\nsearch:\n  boost: {8 * longer}\n---\n# {name}\n\n"
        yield f"reference/{name}.md", f"{heading}::: {home}\n    options:\n      show_root_heading: false\n"
    lines += ["", "Packages, with every module:", ""]
    for room in rooms:
        lines.append(f"- [`{PACKAGE}.{room}`](packages/{room}.md)")
        modules = sorted((ROOT / PACKAGE / room).rglob("*.py"))
        dotted = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in modules]
        options = f"show_root_full_path: true\n      filters: {json.dumps(filters)}"
        parts = [f"::: {name}\n    options:\n      {options}\n" for name in sorted(dotted)]
        yield f"reference/packages/{room}.md", f"---\nsearch:\n  boost: 0.3\n---\n# {PACKAGE}.{room}\n\n" + "\n".join(parts)
    yield "reference/index.md", "\n".join(lines) + "\n"


def _notebook(path: Path) -> str:
    """Return a notebook and its outputs as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        png = base64.b64decode("".join(data["image/png"]))
        alt = output.get("metadata", {}).get("alt", "Plot of the cell above")
        return f'<img alt="{alt}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    text = "".join(output.get("text", []) or data.get("text/plain", []))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def _relinked(text: str, folder: str) -> str:
    """Return a page with its links as they are in the site; `folder` is that of the page, such as "notebooks/"."""
    up = "../" * folder.count("/")

    def moved(match: re.Match[str]) -> str:
        image, words, target, anchor = match.groups()
        if re.match(r"\w+:", target):
            return match[0]
        path = re.sub(r"^(?:\.\./)*(?:docs/)?", "", target)
        page = f"notebooks/{Path(path).stem}.md" if path.endswith(".ipynb") else _PLACES.get(path, path)
        if not page.endswith((".md", ".svg", ".png")):
            return words  # a file of the repository that is not a page
        return f"{image}[{words}]({up}{page}{anchor})"

    return _LINK.sub(moved, text)


def typeset(text: str) -> str:
    """Return Markdown with powers and indices of formulas as <sup> and <sub>; code and links are left as they are.

    >>> typeset("e^(-z) u_z^a A_{z+1} `x_y`")
    'e<sup>-z</sup> u<sub>z</sub><sup>a</sup> A<sub>z+1</sub> `x_y`'
    """
    parts = _CODE.split(text)
    for place in range(0, len(parts), 2):
        part = re.sub(r"\\?_\{([^{}]*)\}", r"<sub>\1</sub>", parts[place])
        part = re.sub(r"(?<=[\w′Σ])\\?_(\w)(?!\w)", r"<sub>\1</sub>", part)
        part = re.sub(r"(?<=[\w′Σ])\\?_(\w)(?=[\^(])", r"<sub>\1</sub>", part)
        part = re.sub(r"\^\(([^()]*(?:\([^()]*\)[^()]*)*)\)", r"<sup>\1</sup>", part)
        parts[place] = re.sub(r"\^(-?\w+)", r"<sup>\1</sup>", part)
    return "".join(parts)


def on_config(config: Any) -> Any:
    """Add the pages of the reference to the navigation."""
    (reference_of,) = (part["Reference"] for part in config["nav"] if "Reference" in part)
    names = [path for path, _ in reference() if path != "reference/index.md"]
    reference_of += [{Path(path).stem: path} for path in names if "/packages/" not in path]
    reference_of.append({"Packages": [{f"{PACKAGE}.{Path(path).stem}": path} for path in names if "/packages/" in path]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made here."""
    from mkdocs.structure.files import File

    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Repair links of pages in docs/, and set formulas."""
    del config, files
    if page.file.generated_by is None:
        markdown = _relinked(markdown, "")
    return typeset(markdown) if page.file.src_uri in FORMULAS else markdown


def build(out: Path, config: Path = ROOT / "mkdocs.yml") -> list[str]:
    """Write the site of a config to a folder.

    Returns:
        One text for each warning.
    """
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    complaints: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(record.getMessage())

    listener = Listener(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(listener)
    try:
        with contextlib.suppress(Abort):  # after an error, which is in the list
            build_site(load_config(str(config), site_dir=str(out), strict=False))
    finally:
        logging.getLogger("mkdocs").removeHandler(listener)
    return complaints


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder of the pages (default: build/docs)")
    out = parser.parse_args(arguments).out
    complaints = build(out)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"{len(list(out.rglob('*.html')))} pages in {out}, {len(complaints)} warnings")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
