// An agent in JavaScript, without a framework: the address and the key come from the environment.
import { readFileSync } from "node:fs";

const facts = { "Tedre Labs": "Tedre Labs is based in Tinmivor.", Tinmivor: "Tinmivor lies in Ransta." };
const sample = JSON.parse(readFileSync(0, "utf8"));
const parameters = { type: "object", properties: { query: { type: "string" } }, required: ["query"] };
const tools = [{ type: "function", function: { name: "search", description: "Search.", parameters } }];
const messages = [{ role: "user", content: sample.prompt }];

for (;;) {
  const response = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${process.env.OPENAI_API_KEY}` },
    body: JSON.stringify({ model: process.env.OPENAI_MODEL, messages, tools }),
  });
  if (!response.ok) throw new Error(await response.text());
  const { message } = (await response.json()).choices[0];
  messages.push(message);
  if (!message.tool_calls) {
    console.log(JSON.stringify({ answer: message.content, metadata: { sdk: "none" } }));
    break;
  }
  for (const call of message.tool_calls) {
    const { query } = JSON.parse(call.function.arguments);
    messages.push({ role: "tool", tool_call_id: call.id, content: facts[query] ?? "Nothing was found." });
  }
}
