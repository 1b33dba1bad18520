"""How many files somebody reads who follows a call from its HTTP request to its span in Kafka."""

from __future__ import annotations

import openai
import pytest

from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, completion, streamed
from tests.support.files_entered import files_entered

FILES_MAX = 16
"""Of the proxy; those of `runtime` and `schemas` (the publisher, the codec, limits on bodies) serve every part."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_goes_through_few_files(start_proxy: StartProxy, upstream: ScriptedUpstream, stream: bool) -> None:
    whole, pieces = completion(), streamed(chunk(1, first=True), chunk(2, finish_reason="stop"))
    upstream.answer = lambda _: pieces if stream else whole
    with files_entered() as entered:
        client = openai.OpenAI(base_url=f"{start_proxy()}/rollout/r/attempt/a/v1", api_key="none", max_retries=0)

        def call() -> None:
            answer = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=stream
            )
            for _ in answer if stream else ():
                pass

        call()
        entered.clear()
        call()
        found = {name for name in entered if name.startswith("producers/llm_proxy/")}
    assert "producers/llm_proxy/recording.py" in found, "the tracing works"
    assert len(found) <= FILES_MAX, sorted(found)
