// An agent in Node: Anthropic's interface, then the reward that the task names, in a file.
import { readFileSync, writeFileSync } from "node:fs";

const task = JSON.parse(readFileSync(0, "utf8"));
const answer = await fetch(`${process.env.ANTHROPIC_BASE_URL}/v1/messages`, {
  method: "POST",
  headers: { "content-type": "application/json", "x-api-key": process.env.ANTHROPIC_API_KEY },
  body: JSON.stringify({
    model: process.env.LIGHTSTREAM_MODEL,
    max_tokens: 10,
    messages: [{ role: "user", content: String(task) }],
  }),
});
if (!answer.ok) throw new Error(await answer.text());
writeFileSync(process.env.LIGHTSTREAM_RESULT_FILE, JSON.stringify({ reward: task, length: 1 }));
