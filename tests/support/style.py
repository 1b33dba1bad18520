"""The style of our pages, as CONTRIBUTING says it; ``python -m tests.support.style`` prints figures of each page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

SENTENCE_WORDS_MAX = 25
PARAGRAPH_WORDS_MAX = 90
HEADING_WORDS_MAX = 9

LONG_SHARE_MAX = 0.04
"""Of a page's sentences; some name a list of things."""

FILLERS = ("what", "those", "of which", "so many", "anew", "asked of", "whoever")
_FILLER = re.compile(rf"\b({'|'.join(FILLERS)})\b", re.IGNORECASE)

SOURCES = ("schemas", "runtime", "producers", "stream_processors", "store_views", "trainers", "entrypoints")

WRITTEN = "<!-- Written by `make docs`. -->"
"""The first line of a page that is generated whole from declarations."""

_CODE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
_END = re.compile(r"""(?<=[.!?])["”)*_]*\s+(?=["“(*_`\[A-Z0-9])""")
_LINK = re.compile(r"\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Page:
    """The prose of a page: without code and comments."""

    headings: tuple[str, ...]
    paragraphs: tuple[str, ...]
    """Paragraphs, items of lists and cells of tables."""

    @property
    def sentences(self) -> list[str]:
        return [sentence for paragraph in self.paragraphs for sentence in sentences_of(paragraph)]


def all_pages() -> list[Path]:
    """Every page, relative to the root."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    return sorted(path.relative_to(ROOT) for path in found)


def reference() -> list[Path]:
    """Every page that is generated."""
    return [path for path in all_pages() if (ROOT / path).read_text("utf-8").startswith(WRITTEN)]


def pages() -> list[Path]:
    """Every page that people write; the change log, a list, is none."""
    return sorted({*all_pages()} - {*reference(), Path("CHANGELOG.md")})


def read(text: str) -> Page:
    """Split Markdown into headings and paragraphs."""
    text = _COMMENT.sub("", _CODE.sub("\n", text))
    headings: list[str] = []
    paragraphs: list[str] = []
    open_lines: list[str] = []

    def close() -> None:
        if open_lines:
            paragraphs.append(" ".join(open_lines))
            open_lines.clear()

    for line in text.splitlines():
        if line.startswith("#"):
            close()
            headings.append(line.lstrip("#").strip())
        elif line.startswith("|"):
            close()
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            paragraphs += [cell for cell in cells if cell.strip("-|: ")]
        elif not line.strip() or (line.startswith("    ") and not open_lines) or line.startswith("!["):
            close()
        elif _ITEM.match(line):
            close()
            open_lines.append(_ITEM.sub("", line).strip())
        else:
            open_lines.append(line.strip())
    close()
    return Page(tuple(headings), tuple(paragraphs))


def sentences_of(paragraph: str) -> list[str]:
    """Split a paragraph; code counts as one word, and the address of a link as none."""
    plain = re.sub(r"`[^`]*`", "`code`", _LINK.sub("]", paragraph))
    return [sentence for sentence in _END.split(plain) if sentence]


def fillers_in(text: str) -> list[str]:
    """Return the fillers of a text; a question may ask what."""
    plain = re.sub(r"`[^`]*`", "`code`", _LINK.sub("]", text))
    return [
        found for part in _END.split(plain) if not part.rstrip('")*_').endswith("?") for found in _FILLER.findall(part)
    ]


def long_sentences(page: Page) -> list[str]:
    return [sentence for sentence in page.sentences if len(sentence.split()) > SENTENCE_WORDS_MAX]


def faults_of(text: str) -> list[str]:
    """Return what a page's headings, paragraphs and sentences have against the style."""
    page = read(text)
    faults = [
        f"heading of {len(heading.split())} words: {heading}"
        for heading in page.headings
        if len(heading.split()) > HEADING_WORDS_MAX
    ]
    faults += [f"heading ends with a full stop: {heading}" for heading in page.headings if heading.endswith(".")]
    faults += [f"filler {found!r}: {part}" for part in (*page.headings, *page.paragraphs) for found in fillers_in(part)]
    faults += [
        f"paragraph of {len(paragraph.split())} words: {paragraph[:80]}"
        for paragraph in page.paragraphs
        if len(paragraph.split()) > PARAGRAPH_WORDS_MAX
    ]
    long = long_sentences(page)
    if len(long) > max(1, LONG_SHARE_MAX * len(page.sentences)):
        faults += [f"sentence of {len(sentence.split())} words: {sentence}" for sentence in long]
    return faults


def sources() -> list[Path]:
    """Every module of the package, relative to the root; the dashboard's build is no part of it."""
    found = (path.relative_to(ROOT) for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "dashboard" not in path.parts)


_ROLE = re.compile(r":[\w:]+:(?=`)")


def first_sentences(source: str) -> Iterator[tuple[int, str]]:
    """Line and first sentence of each docstring of a module and of its public classes and functions."""
    nodes: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if text := ast.get_docstring(node):
            paragraph = _ROLE.sub("", text.partition("\n\n")[0]).replace("\n", " ").replace("``", "`")
            yield getattr(node, "lineno", 1), sentences_of(paragraph)[0]
        if isinstance(node, (ast.Module, ast.ClassDef)):
            defined = (x for x in node.body if isinstance(x, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)))
            nodes += [x for x in defined if not x.name.startswith("_")]


def faults_of_sentence(sentence: str) -> list[str]:
    """Return the faults of one sentence of a docstring, a message or a help text."""
    words = len(sentence.split())
    long = [f"sentence of {words} words: {sentence}"] if words > SENTENCE_WORDS_MAX else []
    return long + [f"filler {found!r}: {sentence}" for found in fillers_in(sentence)]


def faults_of_docstrings(source: str) -> list[str]:
    """Return the faults of the first sentences of a module's docstrings, each with its line."""
    return [f"{line}: {fault}" for line, first in first_sentences(source) for fault in faults_of_sentence(first)]


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each message that a ``raise`` or a ``next_step`` gives; code that is filled in is one word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            given = [*node.exc.args, *(one.value for one in node.exc.keywords)]
        elif isinstance(node, ast.keyword) and node.arg == "next_step":
            given = [node.value]
        else:
            continue
        for one in given:
            if text := _text_of(one):
                yield one.lineno, text


def faults_of_messages(source: str) -> list[str]:
    """Return the faults of each sentence of a module's messages, with its line."""
    found = dict.fromkeys(messages(source))  # a next step is a part of its `raise`, too
    return [
        f"{line}: {fault}"
        for line, text in found
        for sentence in sentences_of(text)
        for fault in faults_of_sentence(sentence)
    ]


def _text_of(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "`code`" for part in node.values)
    return ""


def figures() -> Iterator[str]:
    """Words, sentences, share of long ones, longest paragraph: by page, and of all."""
    words = sentences = long = longest = 0
    for path in pages():
        text = (ROOT / path).read_text("utf-8")
        page = read(text)
        of_page = (
            len(text.split()),
            len(page.sentences),
            len(long_sentences(page)),
            max(len(paragraph.split()) for paragraph in page.paragraphs),
        )
        yield _row(*of_page, str(path))
        words, sentences, long = words + of_page[0], sentences + of_page[1], long + of_page[2]
        longest = max(longest, of_page[3])
    yield _row(words, sentences, long, longest, "all pages outside the reference")


def _row(words: int, sentences: int, long: int, longest: int, name: str) -> str:
    share = long / max(sentences, 1)
    return f"{words:7,} words {sentences:6,} sentences {share:6.1%} long {longest:4} in a paragraph  {name}"


if __name__ == "__main__":
    print(*figures(), sep="\n")
