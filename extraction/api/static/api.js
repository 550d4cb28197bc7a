// The REST API as the console calls it. A key, where one is asked for, lives in this tab alone.

const KEY = "pagemill-key";

export class Problem extends Error {
  constructor(body) {
    super(body.detail ?? "no answer");
    this.reason = body.reason ?? "";
    this.advice = body.advice ?? "";
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

async function call(path, init = {}) {
  const headers = new Headers(init.headers);
  const key = sessionStorage.getItem(KEY);
  if (key) headers.set("Authorization", `Bearer ${key}`);
  let reply;
  try {
    reply = await fetch(path, { ...init, headers });
  } catch {
    throw new Problem({ detail: "the API does not answer" });
  }
  if (reply.status === 401) document.dispatchEvent(new Event("key-wanted"));
  if (!reply.ok) throw new Problem(await reply.json().catch(() => ({ detail: `HTTP ${reply.status}` })));
  return reply;
}

export async function get(path) {
  return (await call(path)).json();
}

// Yields [event, data] of a stream of server-sent events.
export async function* post(path, body, signal) {
  const init = { method: "POST", body: JSON.stringify(body), signal };
  init.headers = { "Content-Type": "application/json" };
  const reply = await call(path, init);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const event = lines.find((line) => line.startsWith("event: "))?.slice(7) ?? "message";
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      yield [event, JSON.parse(data.join("\n"))];
    }
  }
}
