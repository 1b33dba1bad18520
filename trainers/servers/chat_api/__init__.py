"""OpenAI's interface to a model: requests, answers whole and streamed, tool calls."""
