// A page, a schema, a record.

import { get, post, Problem } from "./api.js";
import { connect, showRecord, showText } from "./record.js";

const by = (id) => document.getElementById(id);
const OWN = "\u0000own";
const OWN_SCHEMA = {
  description: "The one product that the page sells.",
  type: "object",
  properties: {
    name: { type: "string", maxLength: 200, description: "Name as in the main heading." },
    price: { type: ["number", "null"], minimum: 0, description: "Price to pay now, a plain number." },
  },
  required: ["name", "price"],
  additionalProperties: false,
};
const SAMPLE = `<!doctype html>
<title>Fennel kettle – Corner Shop</title>
<h1>Fennel kettle</h1>
<p>A kettle of brushed steel for two litres. Article number: FK-20.</p>
<p>EUR 39.90, in stock</p>`;

let running = null;

function state(text, bad = false) {
  by("state").textContent = text;
  by("state").className = bad ? "bad" : "";
}

async function fillSchemas() {
  const { schemas } = await get("v1/schemas");
  const options = schemas.map(({ name, version }) => new Option(`${name} (version ${version})`, name));
  const chosen = by("schema").value;
  by("schema").replaceChildren(...options, new Option("My own…", OWN));
  by("schema").value = chosen || (schemas.some(({ name }) => name === "product") ? "product" : options[0].value);
}

function asked() {
  const options = { text: true };
  for (const name of ["max_tokens", "max_windows"]) {
    if (by(name).value) options[name] = Number(by(name).value);
  }
  options.known_values = by("known_values").checked;
  let schema = by("schema").value;
  if (schema === OWN) {
    try {
      schema = JSON.parse(by("own-schema").value);
    } catch (error) {
      throw new Problem({ detail: `your schema is not JSON: ${error.message}` });
    }
  }
  const url = by("url").value.trim();
  return { html: by("page").value, schema, options, stream: true, ...(url ? { url } : {}) };
}

function show(result) {
  showRecord(by("record"), result.record, result.evidence, result.known);
  showText(by("text"), result.text ?? "", result.evidence);
  for (const id of ["text", "text-title"]) by(id).hidden = !result.text;
  const { usage, timings } = result;
  const seconds = (timings.read_s + timings.prompt_s + timings.engine_s + timings.finish_s).toFixed(2);
  const notes = [
    `${seconds} s`,
    `${usage.prompt_tokens} tokens read (${usage.cached_tokens} known already)`,
    `${usage.completion_tokens} written, ${usage.drafted_tokens} of them copied or forced`,
    result.schema,
    result.model,
  ];
  if (result.windows > 1) notes.push(`${result.windows} parts`);
  if (result.page_cut) notes.push("the page is longer than its parts");
  if (result.truncated) notes.push("the record was closed early");
  state(notes.join(" · "));
}

async function extract() {
  running?.abort();
  running = new AbortController();
  by("go").disabled = true;
  by("record").replaceChildren();
  for (const id of ["text", "text-title"]) by(id).hidden = true;
  state("…");
  const growing = [];
  try {
    for await (const [event, data] of post("v1/extract", asked(), running.signal)) {
      if (event === "delta") {
        growing[data.window] = (growing[data.window] ?? "") + data.text;
        by("record").textContent = growing.filter((text) => text !== undefined).join("\n");
      } else if (event === "result") {
        show(data);
      } else {
        throw new Problem(data);
      }
    }
  } catch (error) {
    const { reason, advice } = error;
    state([reason, error.message, error.message.includes(advice) ? "" : advice].filter(Boolean).join(": "), true);
  } finally {
    by("go").disabled = false;
  }
}

async function take(file) {
  if (!file) return;
  by("page").value = await file.text();
  by("page").focus();
}

export function start() {
  connect(by("record"), by("text"));
  by("own-schema").value = JSON.stringify(OWN_SCHEMA, null, 2);
  by("schema").addEventListener("change", () => {
    by("own-schema").hidden = by("schema").value !== OWN;
  });
  by("sample").addEventListener("click", () => {
    by("page").value = SAMPLE;
    by("url").value = "https://shop.example/fennel-kettle";
  });
  by("file").addEventListener("change", () => take(by("file").files[0]));
  const form = by("extract-form");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    extract();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  for (const name of ["dragover", "dragleave", "drop"]) {
    form.addEventListener(name, (event) => {
      event.preventDefault();
      form.classList.toggle("dropping", name === "dragover");
    });
  }
  form.addEventListener("drop", (event) => take(event.dataTransfer.files[0]));
}

export async function enter() {
  try {
    await fillSchemas();
  } catch (error) {
    state(error.message, true);
  }
}
