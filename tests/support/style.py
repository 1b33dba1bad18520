"""The style of our pages, as CONTRIBUTING says it; ``python -m tests.support.style`` prints figures of each page."""

from __future__ import annotations

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
