"""``lightstream sql`` without a statement: a prompt with completion and history."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from lightstream.runtime.files import private_folder
from lightstream.schemas.errors import LightstreamError
from lightstream.store_views.queries import QUERIES

from .formats import RowFormat
from .load import needs
from .rows import console_for_rows, print_rows
from .sql import Question, run_queries_list, run_sql, values_given
from .view_query import ViewSource

with needs("view"):
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

HELP = """A statement ends with ; and may have several lines.
:NAME [--parameter VALUE …]   a query that has a name; : lists them
\\d [TABLE]                    tables and views, or the columns of one, with their meanings
\\x                            each column on a line of its own, on or off
\\timing                       how long each statement took, on or off
\\watch [SECONDS]              the last statement again and again, until Ctrl-C
\\q, exit, quit                the end (also Ctrl-D)"""

KEYWORDS = re.findall(
    r"\w+",
    "SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET JOIN LEFT USING ON AS WITH HAVING DISTINCT COUNT AVG SUM MIN MAX "
    "UNNEST FILTER CASE WHEN THEN ELSE END AND OR NOT IS NULL IN BETWEEN LIKE ILIKE DESC ASC ALL UNION DESCRIBE SHOW "
    "TABLES SUMMARIZE EXPLAIN ANALYZE PIVOT OVER PARTITION QUALIFY",
)

COMMANDS = ("\\d", "\\h", "\\q", "\\timing", "\\watch", "\\x")

WATCH_S = 2.0

CLEAR = "\x1b[H\x1b[2J"

ENDS = ("exit", "quit", ".exit", ".quit")
"""Words that end the prompt, with or without a semicolon."""

_WORD = re.compile(r"[\\:]?[\w-]*$")

TABLES = """
SELECT table_name AS name, 'table' AS kind, comment FROM duckdb_tables()
WHERE database_name = 'lightstream' AND NOT internal
UNION ALL
SELECT view_name, 'view', comment FROM duckdb_views() WHERE database_name = 'lightstream' AND NOT internal
ORDER BY kind DESC, name
"""

COLUMNS = """
SELECT column_name AS name, data_type AS type, comment FROM duckdb_columns()
WHERE database_name = 'lightstream' AND table_name = $table ORDER BY column_index
"""


def run_prompt(source: ViewSource) -> None:
    """Read statements and show their answers until the end of input.

    Raises:
        ServiceUnavailableError: no view runs.
    """
    history = source.settings.data_dir / "sql_history"
    private_folder(history.parent)
    prompt = SqlPrompt(source)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        completer=SqlCompleter(prompt.read_names()),
        complete_while_typing=False,
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation="      … ",
        enable_open_in_editor=True,
    )
    if sys.stdin.isatty():
        print("\\h helps; a statement ends with ;")
    while not prompt.is_over:
        try:
            prompt.take(session.prompt("lightstream> "))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


class SqlPrompt:
    """Outcome of each input."""

    def __init__(self, source: ViewSource) -> None:
        self.is_over = False
        self._source = source
        self._vertical = False
        self._timing = False
        self._last: Question | None = None
        self._errors = Console(stderr=True, highlight=False)

    def read_names(self) -> dict[str, list[str]]:
        """Table or view -> its columns.

        Raises:
            ServiceUnavailableError: no view runs.
        """
        rows = self._source.ask(
            "SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() "
            "WHERE database_name = 'lightstream' GROUP BY ALL"
        )["rows"]
        return {table: list(columns) for table, columns in rows}

    def take(self, text: str) -> None:
        """Run an input; errors are printed, and the prompt goes on."""
        try:
            self._take(text.strip())
        except LightstreamError as error:
            self._errors.print(f"[bold red]Error:[/] {escape(str(error))}", soft_wrap=True)

    def _take(self, text: str) -> None:
        if not text:
            return
        command, *arguments = text.split()
        if _ends(text):
            self.is_over = True
        elif command.startswith("\\"):
            self._command(command, arguments)
        elif text == ":":
            run_queries_list()
        elif text.startswith(":"):
            self._ask(Question.of(command.rstrip(";"), values_given([one.rstrip(";") for one in arguments])))
        else:
            self._ask(Question(text.rstrip("; \n"), {}))

    def _command(self, command: str, arguments: Sequence[str]) -> None:
        match command:
            case "\\q":
                self.is_over = True
            case "\\x":
                self._vertical = not self._vertical
                print(f"vertical: {'on' if self._vertical else 'off'}")
            case "\\timing":
                self._timing = not self._timing
                print(f"timing: {'on' if self._timing else 'off'}")
            case "\\d":
                self._describe(*arguments[:1])
            case "\\watch":
                self._watch(*arguments[:1])
            case _:
                print(HELP)

    def _describe(self, table: str = "") -> None:
        answer = self._source.ask(COLUMNS, params={"table": table}) if table else self._source.ask(TABLES)
        if table and not answer["rows"]:
            print(f"there is no table {table}; \\d lists them")
            return
        print_rows(console_for_rows(), answer["columns"], answer["rows"], cut=False)

    def _watch(self, seconds: str = "") -> None:
        if self._last is None:
            print("there is no statement yet that could be watched")
            return
        try:
            pause_s = float(seconds or WATCH_S)
        except ValueError:
            print(f"\\watch takes a number of seconds, not {seconds}")
            return
        try:
            while True:
                if sys.stdout.isatty():
                    sys.stdout.write(CLEAR)
                self._ask(self._last)
                time.sleep(max(pause_s, 0.1))
        except KeyboardInterrupt:
            print()

    def _ask(self, question: Question) -> None:
        begun_s = time.monotonic()
        self._last = question
        run_sql(self._source, question, RowFormat.TABLE, vertical=self._vertical)
        if self._timing:
            print(f"{time.monotonic() - begun_s:.3f} s")


class SqlCompleter(Completer):
    """Offers tables, their columns (first of tables in the statement), keywords, commands and named queries."""

    def __init__(self, tables: Mapping[str, Sequence[str]]) -> None:
        self._tables = tables

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        found = _WORD.search(document.text_before_cursor)
        word = found.group() if found else ""
        for offered in self._offers(document.text, word):
            if offered.lower().startswith(word.lower()):
                yield Completion(offered, start_position=-len(word))

    def _offers(self, text: str, word: str) -> list[str]:
        if word.startswith("\\"):
            return list(COMMANDS)
        if word.startswith(":"):
            return [f":{name}" for name in QUERIES]
        named = [name for name in self._tables if re.search(rf"\b{re.escape(name)}\b", text)]
        columns = [column for name in named for column in self._tables[name]]
        keywords = [keyword.lower() if word.islower() else keyword for keyword in KEYWORDS]
        return list(dict.fromkeys([*columns, *sorted(self._tables), *keywords]))


def _ends(text: str) -> bool:
    """Whether an input is the end of the prompt: a word for it, or a statement given up by ``\\q`` on its last line."""
    lines = text.strip().splitlines()
    return bool(lines) and (lines[-1].strip() == "\\q" or text.strip("; \n").lower() in ENDS)


def _keys() -> KeyBindings:
    """Enter runs what is complete: a command, a named query, or what ends with a semicolon."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text.strip()
        if not text or text[0] in "\\:" or text.endswith(";") or _ends(text):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    return keys
