"""Tools of MCP servers for a plain agent: a server process, or a connection, of each attempt's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import LLM

from ..chat import Tool, converse, opening
from ..environment import EnvironmentFailedError
from .library import library

DISTRIBUTION = "mcp"


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server.

    Attributes:
        command: program and arguments of one that speaks over standard input and output.
        url: address of one that speaks HTTP, in place of ``command``.
        environment: variables of the program, beside ``PATH`` and the like.
    """

    command: Sequence[str] = ()
    url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url) or isinstance(self.command, str):
            raise SettingsError(
                f"an MCP server has the command {self.command!r} and the address {self.url!r}.",
                next_step='Give one of them: command=["python", "server.py"], or url="http://…/mcp".',
            )

    @property
    def shown(self) -> str:
        """The server as messages name it: its program, or its address, without arguments and secrets."""
        if self.command:
            return self.command[0]
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def tool_agent(
    *servers: McpServer, system: str = "", template: str = "{input}", turns_max: int = 10
) -> Callable[..., Awaitable[str]]:
    """An agent with the tools of MCP servers; it returns the model's last text.

    Args:
        servers: each is started, or connected to, for each attempt.
        system, template: see :func:`~lightstream.trainers.environments.chat.single_answer`.
        turns_max: answers of the model at most.

    Raises:
        SettingsError: the package ``mcp`` is not installed, or another version is.
    """
    library(DISTRIBUTION)

    async def agent(task: Any, llm: LLM) -> str:
        async with server_tools(servers) as tools:
            return await converse(llm, opening(task, system, template), tools, turns_max=turns_max)

    return agent


@asynccontextmanager
async def server_tools(servers: Sequence[McpServer]) -> AsyncGenerator[list[Tool]]:
    """The tools of these servers, which run within the block.

    Raises:
        EnvironmentFailedError: a server does not start or speak, or two have a tool of one name.
    """
    try:
        async with AsyncExitStack() as stack:
            tools: list[Tool] = []
            for server in servers:
                try:
                    tools += await _tools_of(stack, server)
                except Exception as error:  # the server's start may fail by any error, and a group of errors
                    raise EnvironmentFailedError(
                        f"the MCP server {server.shown} gives no tools: {_first(error)!r}."
                    ) from error
            names = [tool.name for tool in tools]
            if len(set(names)) < len(names):
                raise EnvironmentFailedError(f"two MCP servers have a tool of one name: {', '.join(sorted(names))}.")
            yield tools
    except BaseExceptionGroup as group:  # the clients' task groups wrap errors of the block too
        raise _first(group) from group


async def _tools_of(stack: AsyncExitStack, server: McpServer) -> list[Tool]:
    mcp = library(DISTRIBUTION)
    if server.url:
        http = library(DISTRIBUTION, "mcp.client.streamable_http")
        streams = await stack.enter_async_context(http.streamable_http_client(server.url))
    else:
        program, *arguments = server.command
        parameters = mcp.StdioServerParameters(
            command=program, args=arguments, env=dict(server.environment) if server.environment else None
        )
        streams = await stack.enter_async_context(mcp.stdio_client(parameters))
    session = await stack.enter_async_context(mcp.ClientSession(streams[0], streams[1]))
    await session.initialize()
    tools: list[Tool] = []
    cursor: str | None = None
    while True:
        page = await session.list_tools(params=mcp.types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += [
            Tool(tool.name, tool.description or "", tool.input_schema, partial(_call, session, tool.name))
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            return tools


async def _call(session: Any, name: str, arguments: Mapping[str, Any]) -> str:
    result = await session.call_tool(name, dict(arguments))
    texts = [str(part.text) for part in result.content if getattr(part, "text", None) is not None]
    return ("Error: " if result.is_error else "") + "\n".join(texts)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
