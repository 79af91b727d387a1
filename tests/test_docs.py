"""The documentation site is built without a warning, and pages name only tests, modules and settings that exist."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import teacher_student
from teacher_student.privacy import calibrate

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "build_docs.py"

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FOLDERS = ("teacher_student", "research", "tests", "scripts", "conf")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))


def texts(paths: list[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path.suffix in {".py", ".md", ".yaml", ".html"}:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


def anchor(heading: str) -> str:
    """As GitHub makes it: lower case, no punctuation, hyphens for blanks."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def names_of_tests(text: str) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", text, flags=re.MULTILINE))


def faults_of_page(name: str, text: str) -> Iterator[str]:
    """Yield tests, modules and links of a page that lead nowhere."""
    for file, test in re.findall(r"(?<!# )\b(tests/[\w/]+\.py)(?:::(\w+))?", text):  # in commands, too; "# " begins an example
        path = ROOT / file
        if not path.is_file() or (test and test not in names_of_tests(path.read_text(encoding="utf-8"))):
            yield f"{name}: {file}::{test}"
    for module in re.findall(r"`((?!tests/)[a-z_]+(?:/[a-z_]+)+\.py)`", text):
        if not any((base / module).is_file() for base in (ROOT, ROOT / "teacher_student")):
            yield f"{name}: {module}"
    for target, fragment in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        page = (ROOT / name).parent / target if target else ROOT / name
        if not page.exists() or (fragment and fragment not in map(anchor, headings(page))):
            yield f"{name}: {target}#{fragment}"


def settings(folder: Path) -> set[str]:
    """Dotted names of all settings of the configs in a folder."""
    found: set[str] = set()

    def walk(node: object, prefix: str) -> None:
        for key, value in node.items() if isinstance(node, dict) else ():
            found.add(prefix + key)
            walk(value, f"{prefix}{key}.")

    for path in folder.rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        package = re.match(r"# @package (\S+)", text)
        where = package[1] if package else ".".join(path.relative_to(folder).parts[:-1])
        walk(yaml.safe_load(text), f"{where}." if where not in {"", "_global_"} else "")
    return found


SETTINGS = settings(ROOT / "conf") | {"teachers.training.chunk"}  # taken with a plus
ROOMS = ["teacher_student", "research", *(path.name for path in (ROOT / "teacher_student").iterdir() if path.is_dir())]


def is_in_python(name: str) -> bool:
    """Whether a dotted name, with or without `teacher_student.`, is one of Python's; an old name warns, which fails the test."""
    parts = name.split(".")
    for package in (importlib.import_module(room) for room in ("teacher_student", "research")):
        found: object = package
        for part in parts[1:] if parts[0] == package.__name__ else parts:
            if not hasattr(found, part) and isinstance(found, ModuleType):
                with contextlib.suppress(ModuleNotFoundError):
                    importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part, None)
        if found is not None:
            return True
    return False


def faults_of_names(name: str, text: str) -> Iterator[str]:
    """Yield dotted names in backticks that are neither in the packages nor settings, such as `privacy.nowhere`."""
    for dotted in set(re.findall(rf"`\+?((?:{'|'.join(ROOMS)})(?:\.\w+)+)", text)):
        if dotted not in SETTINGS and not is_in_python(dotted):
            yield f"{name}: {dotted}"


def faults_of_citations(name: str, text: str) -> Iterator[str]:
    """Yield pages of docs/ that a text cites and that are not there, or lack the section: docs/PAGE.md, "Section"."""
    for page, section in re.findall(r'\bdocs/(\w+\.md)(?:,\s+(?:#\s+)?"([^"]+)")?', text):
        path, wanted = ROOT / "docs" / page, " ".join(section.split())
        if not path.is_file() or (wanted and wanted not in headings(path)):
            yield f"{name}: docs/{page}, {wanted}"


def test_pages_name_only_tests_modules_and_links_that_exist():
    assert [fault for name, text in texts(PAGES) for fault in faults_of_page(name, text)] == []


def test_pages_name_only_settings_and_python_names_that_exist():
    pages = [path for path in PAGES if path.name != "CHANGELOG.md"]  # which names what was renamed
    assert [fault for name, text in texts(pages) for fault in faults_of_names(name, text)] == []


@pytest.mark.parametrize("dotted", ["privacy.nowhere", "teacher_student.data.nowhere", "student.settings.nowhere"])
def test_names_of_nothing_are_found(dotted):
    assert len(list(faults_of_names("x", f"`{dotted}`, `privacy.epsilon=1`, `data.assign_shards`, `research.theory`"))) == 1


def test_sections_that_are_cited_exist():
    others = [*PAGES, *(path for path in SOURCES if path != Path(__file__))]
    assert [fault for name, text in texts(others) for fault in faults_of_citations(name, text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "`tests/test_docs.py::test_that_is_not_there`",
        "`tests/test_nowhere.py`",
        "`uv run pytest -m slow tests/test_nowhere.py`",
        "Code: `privacy/nowhere.py`.",
        "[a page](nowhere.md)",
        "[a section](privacy.md#nowhere)",
        "[a section](#nowhere)",
    ],
)
def test_what_leads_nowhere_is_found(text):
    assert len(list(faults_of_page("docs/privacy.md", text))) == 1


@pytest.mark.parametrize("text", ["see docs/nowhere.md", 'see docs/privacy.md, "Nowhere"', 'docs/privacy.md,\n    "Nowhere"'])
def test_citations_of_nothing_are_found(text):
    assert len(list(faults_of_citations("x", text))) == 1
    assert not list(faults_of_citations("x", 'docs/privacy.md,\n    "Few votes"'))


def test_the_rules_are_cited_from_the_repository():
    cited = [name for name, text in texts([*PAGES, *SOURCES]) if "PRIVACY" + ".md" in text]
    assert set(cited) <= {"CHANGELOG.md"}


def test_the_reference_points_of_the_rules_are_those_of_the_code():
    rows = re.findall(
        r"^\| (\d+) \| (\d) \| (1e-\d) \| ([\d. |]+) \|$", (ROOT / "docs/privacy.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == 6
    for cutoff, epsilon, delta, numbers in rows:
        found = calibrate("stability", epsilon=float(epsilon), delta=float(delta), cutoff=int(cutoff))
        threshold_scale, query_scale, threshold, reached = map(float, numbers.split(" | "))
        assert float(found.threshold_scale) == pytest.approx(threshold_scale, abs=6e-4)
        assert float(found.query_scale) == pytest.approx(query_scale, abs=6e-4)
        assert found.threshold == threshold
        assert found.epsilon(float(delta)) == pytest.approx(reached, abs=6e-5)


@pytest.fixture(scope="module")
def script():
    return _script("build_docs")


SITES = {
    "sound": ("# Page\n\n[itself](index.md)\n\n::: teacher_student.labels\n", ""),
    "a link to nowhere": ("# Page\n\n[nowhere](nowhere.md)\n", "nowhere.md"),
    "an anchor to nowhere": ("# Page\n\n[nowhere](#nowhere)\n", "#nowhere"),
    "a name of nothing": ("# Page\n\n::: teacher_student.labels.nowhere\n", "nowhere"),
    "a page without a place": ("# Page\n", "lost.md"),
}


@pytest.mark.parametrize("name", SITES)
def test_every_fault_of_the_site_is_a_warning(script, name, tmp_path):
    pytest.importorskip("mkdocstrings")
    text, fault = SITES[name]
    whole = (
        (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("[scripts/", f"[{ROOT}/scripts/").replace("[.]", f"[{ROOT}]")
    )
    config = re.sub(r"^hooks:\n.*\n", "", whole[: whole.index("\nnav:")], flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(config + "\nnav: [index.md]\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(text)
    if "without a place" in name:
        (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    complaints = script.build(tmp_path / "out", tmp_path / "mkdocs.yml")
    assert bool(complaints) == bool(fault), complaints
    assert fault in " ".join(complaints)


def test_a_warning_ends_with_exit_code_one(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "build", lambda *_: ["the docstring of x is wrong"])
    assert script.main(["--out", str(tmp_path)]) == 1
    assert "x is wrong" in capsys.readouterr().err


def test_formulas_are_set_and_code_is_not(script):
    assert script.typeset("laws A_z, A′\\_z of `x_y^2`") == "laws A<sub>z</sub>, A′<sub>z</sub> of `x_y^2`"
    assert script.typeset("e^(−2π) p^a q^(1−a) H(A_{z+1})") == (
        "e<sup>−2π</sup> p<sup>a</sup> q<sup>1−a</sup> H(A<sub>z+1</sub>)"
    )
    proof = script.typeset((ROOT / "docs/tight_guarantee.md").read_text(encoding="utf-8"))
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", proof, flags=re.DOTALL)
    assert not re.findall(r"\S*\^\S*|\w_\w", prose)


def test_the_reference_has_a_page_for_every_promoted_name_and_every_module(script):
    pages = dict(script.reference())
    promoted = set(teacher_student.__all__) - {"__version__"}
    assert {Path(path).stem for path in pages if "/packages/" not in path} - {"index"} == promoted
    package = Path(teacher_student.__file__).parent
    modules = {".".join(path.relative_to(package.parent).with_suffix("").parts) for path in package.glob("*/**/*.py")}
    listed = set(re.findall(r"^::: (\S+)", "".join(pages.values()), flags=re.MULTILINE))
    assert {module.removesuffix(".__init__") for module in modules} <= listed
    boosts = {path: int(found[1]) for path, text in pages.items() if (found := re.search(r"boost: (\d+)$", text, re.MULTILINE))}
    others = [boost for path, boost in boosts.items() if "label" in path.lower() and path != "reference/label.md"]
    assert boosts["reference/label.md"] >= 2 * max(others)  # the first hit of a search for it


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocstrings")
    done = subprocess.run([sys.executable, SCRIPT, "--out", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Release private labels" in (tmp_path / "reference" / "label.html").read_text(encoding="utf-8")
    assert "A′<sub>z</sub>" in (tmp_path / "tight_guarantee.html").read_text(encoding="utf-8")
    outside = [
        re.findall(r'(?:src|<link[^>]* href)="(https?://[^"]+)', page.read_text("utf-8")) for page in tmp_path.rglob("*.html")
    ]
    assert not [address for found in outside for address in found]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plot_of_the_readme_is_drawn_from_the_tables_of_results():
    drawing, page = _script("draw_accuracy"), (ROOT / "docs/results.md").read_text(encoding="utf-8")
    picture = drawing.PICTURE.read_text(encoding="utf-8")
    assert f"<desc>{drawing.describe(page)}</desc>" in picture
    assert f"<desc>{drawing.describe(page.replace('85.40 ±', '85.39 ±'))}</desc>" not in picture
    assert len(picture) < 150_000
    assert not re.search(r"(href|src)=\"https?:|url\(['\"]?http", picture)


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"\S*\w\S*", text)) <= 900  # boxes and bars of tables are no words
