"""The prompt that a search finds, and how often it asks: ``python -m tests.agent_lightning.searches <package>``.

Searches are read from standard input and answers printed, all of it JSON.

Needs nothing but the package, Agent Lightning or ours: each runs in an environment of its own.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
import warnings
from typing import Any

import httpx
from openai import AsyncOpenAI

PLANTED = ("zebra", "quartz", "violin")
SEED = "Answer {question}."
TASKS = [{"question": f"q{number}"} for number in range(4)]
TEMPLATE = re.compile(r"Answer \{question\}\.(?: [a-z]+(?![\w:]))*")
CRITIC, EDITOR = "critic", "editor"


class ScriptedServer:
    """As a critic it names the first planted word that a template lacks; as an editor it adds the word it is told.

    Attributes:
        asked: number of its answers.
    """

    def __init__(self, useless: int) -> None:
        self.asked = 0
        self._useless = useless

    def client(self) -> AsyncOpenAI:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._complete))
        return AsyncOpenAI(base_url="http://scripted/v1", api_key="none", http_client=http, max_retries=0)

    def _complete(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        said = "\n".join(str(message["content"]) for message in body["messages"])
        self.asked += 1
        message = {"role": "assistant", "content": self._answer(body["model"], said)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"], "usage": usage}
        return httpx.Response(200, json=answer | {"choices": [choice]})

    def _answer(self, model: str, said: str) -> str:
        """Of so many answers one is of no use, where it is a critic's."""
        if model == CRITIC:
            missing = [word for word in PLANTED if word not in said]
            return f"add:{missing[0]}" if missing and self.asked % self._useless else "add:nothing"
        found, word = TEMPLATE.search(said), re.search(r"add:(\w+)", said)
        assert found is not None, said
        assert word is not None, said
        return f"{found[0]} {word[1]}"


def searched(package: Any, search: dict[str, Any]) -> dict[str, Any]:
    """The planted words in the best prompt of one search, and how often it asked."""
    server = ScriptedServer(search["useless"])

    @package.rollout  # type: ignore[untyped-decorator]  # of either package
    def follower(task: dict[str, str], prompt_template: Any) -> float:
        prompt = prompt_template.format(**task)
        return sum(word in prompt for word in PLANTED) / len(PLANTED)

    models = {"gradient_model": CRITIC, "apply_edit_model": EDITOR}
    algorithm = package.APO(server.client(), **models, **search["options"])
    trainer = package.Trainer(
        algorithm=algorithm,
        n_runners=1,
        strategy={"type": "shm", "main_thread": "algorithm"},
        store=package.InMemoryLightningStore(),
        runner=lambda: package.LitAgentRunner(package.OtelTracer(), poll_interval=0.2),
        adapter=package.TraceToMessages(),
        initial_resources={"prompt_template": package.PromptTemplate(template=SEED, engine="f-string")},
    )
    trainer.fit(follower, train_dataset=TASKS, val_dataset=TASKS)
    best = algorithm.get_best_prompt().template
    return {"found": [word for word in PLANTED if word in best], "asked": server.asked}


def main(package_name: str) -> None:
    package = importlib.import_module(package_name)
    printed = sys.stdout
    sys.stdout = sys.stderr  # what searches say of themselves
    for search in json.load(sys.stdin):
        print(json.dumps(searched(package, search)), file=printed, flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    main(sys.argv[1])
