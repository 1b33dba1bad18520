"""Pages, help of commands, docstrings and messages keep to the style that CONTRIBUTING.md describes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from lightstream.cli.app import app
from tests.support import style

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", style.pages(), ids=str)
def test_a_page_keeps_to_the_style(path: Path) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert style.read(text).sentences, "the page has prose"
    assert style.faults_of(text) == []


def test_the_pages_a_new_user_reads_are_among_those_checked() -> None:
    first = {Path(name) for name in ("README.md", "CONTRIBUTING.md")}
    assert first <= set(style.pages())


def test_few_sentences_of_all_pages_are_long() -> None:
    pages = [style.read((ROOT / path).read_text("utf-8")) for path in style.pages()]
    sentences = sum(len(page.sentences) for page in pages)
    assert sentences > 2000
    assert sum(len(style.long_sentences(page)) for page in pages) <= style.LONG_SHARE_MAX * sentences


LONG = " ".join(["Word", *["word"] * (style.SENTENCE_WORDS_MAX - 1)])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# One two three four five six seven eight nine ten\n", "heading of 10 words"),
        ("# Run it.\n", "heading ends with a full stop"),
        ("# What runs\n", "filler 'What'"),
        ("It is made anew.\n", "filler 'anew'"),
        ("- It names those\n  of which one is kept.\n", "filler 'of which'"),
        ("| a | for whoever asks |\n", "filler 'whoever'"),
        (f"{LONG} more. {LONG} more.\n", "sentence of 26 words"),
        (f"- {LONG}\n  more. {LONG} more.\n", "sentence of 26 words"),
        ("\n".join(["A word. " * 10] * 5), "paragraph of 100 words"),
    ],
    ids=["long-heading", "full-stop", "filler-heading", "filler", "item", "cell", "sentence", "wrapped", "paragraph"],
)
def test_each_fault_is_found(text: str, fault: str) -> None:
    assert any(found.startswith(fault) for found in style.faults_of(text)), style.faults_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "# What is a rollout?\n\nOne task.\n",
        "    lightstream sql 'what those anew'\n",
        "```sh\necho those of which\n```\n",
        "`what` and [a link](what-those.md) are no words.\n",
        f"{LONG}. {LONG}.\n",
    ],
    ids=["question", "indented", "fence", "code", "short"],
)
def test_code_links_and_questions_are_no_fault(text: str) -> None:
    assert style.faults_of(text) == []


def _commands(command: object, name: str) -> Iterator[tuple[str, str]]:
    """Name and help of a command and of all below it."""
    if getattr(command, "hidden", False):
        return
    yield name, str(getattr(command, "help", None) or "")
    for sub_name, sub in getattr(command, "commands", {}).items():
        yield from _commands(sub, f"{name} {sub_name}")


COMMANDS = dict(_commands(typer.main.get_command(app), "lightstream"))


def test_the_commands_are_found() -> None:
    assert {"lightstream up", "lightstream runs delete", "lightstream eval"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_first_and_shortly_what_it_does(name: str) -> None:
    first = style.sentences_of(COMMANDS[name].partition("\n\n")[0].replace("\n", " "))[0]
    assert re.match(r"[A-Z]\w+[, ]", first), "a verb, or the thing"
    assert len(first.split()) <= style.SENTENCE_WORDS_MAX, first
    assert style.fillers_in(first) == []


@pytest.mark.parametrize("folder", style.SOURCES)
def test_docstrings_and_messages_keep_to_the_style(folder: str) -> None:
    faults: list[str] = []
    for path in style.sources():
        if path.parts[0] == folder:
            source = (ROOT / path).read_text("utf-8")
            faults += [f"{path}:{fault}" for fault in style.faults_of_docstrings(source)]
            faults += [f"{path}:{fault}" for fault in style.faults_of_messages(source)]
    assert faults == []


def test_the_docstrings_and_messages_are_found() -> None:
    sources = [(ROOT / path).read_text("utf-8") for path in style.sources()]
    assert sum(len(list(style.first_sentences(source))) for source in sources) > 3000
    assert sum(len(list(style.messages(source))) for source in sources) > 1000


SOURCE = '''"""What a module is. More."""


class Public:
    """Those of a class."""

    def method(self) -> None:
        """As :meth:`what`, and ``those``. What follows is free."""
        raise ValueError(f"{self} is made anew. Second.", next_step="Take " "so many.")

    def _own(self) -> None:
        """What nobody reads."""
'''


def test_faults_of_docstrings_are_found() -> None:
    assert style.faults_of_docstrings(SOURCE) == [
        "1: filler 'What': What a module is.",
        "4: filler 'Those': Those of a class.",
    ]
    assert style.faults_of_docstrings(f'"""{LONG} more."""') == [f"1: sentence of 26 words: {LONG} more."]


def test_faults_of_messages_are_found() -> None:
    assert style.faults_of_messages(SOURCE) == [
        "9: filler 'anew': `code` is made anew.",
        "9: filler 'so many': Take so many.",
    ]


ADDRESS = re.compile(r"\]\(([^)\s]+)\)")


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", style.all_pages(), ids=str)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / path).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken: list[str] = []
    for address in ADDRESS.findall(text):
        if address.startswith(("https://", "http://")):
            continue
        name, _, anchor = address.partition("#")
        target = (ROOT / path).parent / name if name else ROOT / path
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text("utf-8"))):
            broken.append(address)
    assert broken == []


GENERATED_WORDS_MAX = 3500


@pytest.mark.parametrize("path", style.reference(), ids=str)
def test_a_generated_page_is_short_enough_to_read(path: Path) -> None:
    assert len((ROOT / path).read_text("utf-8").split()) <= GENERATED_WORDS_MAX, "split it"


def test_the_generated_pages_are_found() -> None:
    names = {path.name for path in style.reference()}
    assert {"settings.md", "options.md", "train.md", "agent-lightning.md", "rollouts.md"} <= names


MESSAGE = re.compile(r"^> (.+(?:\n> .+)*)$", re.MULTILINE)


def _texts() -> Iterator[str]:
    """Every text of the code; what is filled in is ``…``."""
    for path in style.sources():
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub("%[srd]", "…", node.value)


def test_the_messages_of_troubleshooting_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    messages = [message.replace("\n> ", " ") for message in MESSAGE.findall(page)]
    assert len(messages) >= 20
    texts = "\0".join(_texts())
    assert [message for message in messages if message not in texts] == []
