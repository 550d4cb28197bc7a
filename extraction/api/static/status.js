// Queue, engine and pace, asked every two seconds while the view is open.

import { get } from "./api.js";

const by = (id) => document.getElementById(id);
const EVERY_MS = 2000;
const KEPT = 60;

let timer = null;
let last = null;
const rates = [];

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString());
const percent = (value) => `${Math.round(100 * value)} %`;

function figures({ queue, engine }) {
  const rows = [
    ["Waiting pages", queue && number(queue.queued)],
    ["At workers", queue && number(queue.leased)],
    ["Done", queue && number(queue.done)],
    ["Failed", queue && number(queue.failed)],
    ["Dead", queue && number(queue.dead)],
    ["Oldest waits", queue && `${Math.round(queue.oldest_s)} s`],
    ["Running requests", engine && number(engine.running)],
    ["Waiting requests", engine && number(engine.waiting)],
    ["KV cache in use", engine && percent(engine.kv_cache_usage)],
    ["Prompt tokens cached", engine && percent(engine.prefix_hit_rate)],
  ];
  by("figures").replaceChildren(
    ...rows.map(([name, value]) => {
      const box = document.createElement("div");
      const term = document.createElement("dt");
      term.textContent = name;
      const figure = document.createElement("dd");
      figure.textContent = value ?? "–";
      box.append(term, figure);
      return box;
    }),
  );
}

function rate(queue) {
  if (!queue) return;
  const now = { at: performance.now(), count: queue.done + queue.failed + queue.dead };
  if (last) rates.push((1000 * (now.count - last.count)) / (now.at - last.at));
  last = now;
  if (rates.length > KEPT) rates.shift();
  const top = Math.max(1, ...rates);
  const points = rates.map((value, i) => `${(600 * i) / (KEPT - 1)},${118 - (112 * Math.max(0, value)) / top}`);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.join(" "));
  by("rate").replaceChildren(line);
  by("rate-now").textContent = rates.length ? `– now ${rates.at(-1).toFixed(1)}` : "";
}

async function ask() {
  try {
    const found = await get("v1/status");
    const missing = [found.queue ? "" : "Redis", found.engine ? "" : "the engine"].filter(Boolean);
    by("ready").textContent = missing.length ? `${missing.join(" and ")} can't be reached` : "Ready";
    by("ready").className = missing.length ? "bad" : "";
    figures(found);
    rate(found.queue);
  } catch (error) {
    by("ready").textContent = error.message;
    by("ready").className = "bad";
  }
}

export function start() {}

export function enter() {
  clearInterval(timer);
  timer = setInterval(ask, EVERY_MS);
  return ask();
}

export function leave() {
  clearInterval(timer);
}
