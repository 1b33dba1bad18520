"""An MCP server with one tool."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("weather")


@server.tool()
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


if __name__ == "__main__":
    server.run()
