from tests.frameworks import test_langchain as m
from tests.frameworks.harness import dump
from tests.frameworks.model_server import *
def test_dump2(scripted, script):
    both = CallTools((("weather", {"city": "Bergen"}), ("weather", {"city": "Voss"})))
    script.script = in_turn(both, Say("Rain in both."))
    s = scripted.run(m.agent_with_tools)
    dump(s)
