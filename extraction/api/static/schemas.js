// Registered schemas: versions, advice, and what a version changed.

import { get } from "./api.js";

const by = (id) => document.getElementById(id);

function items(list, texts) {
  list.replaceChildren(
    ...texts.map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }),
  );
}

async function show(name, version) {
  const found = await get(`v1/schemas/${encodeURIComponent(name)}${version ? `@${version}` : ""}`);
  by("schema-detail").hidden = false;
  by("schema-name").textContent = `${found.name}@${found.version}`;
  by("schema-version").replaceChildren(
    ...found.versions.map((number) => new Option(number, number, false, number === found.version)),
  );
  by("schema-before").replaceChildren(
    new Option("–", ""),
    ...found.versions.filter((number) => number !== found.version).map((number) => new Option(number, number)),
  );
  items(by("warnings"), found.warnings.map(({ pointer, message }) => `${pointer || "/"}: ${message}`));
  by("schema-text").textContent = JSON.stringify(found.schema, null, 2);
  by("verdict").textContent = "";
  items(by("changes"), []);
}

async function compare() {
  const [name, version] = by("schema-name").textContent.split("@");
  const before = by("schema-before").value;
  if (!before) return show(name, version);
  const found = await get(`v1/schemas/${encodeURIComponent(name)}/diff?from=${before}&to=${version}`);
  by("verdict").textContent = `From version ${before} to ${version}: ${found.verdict}`;
  items(by("changes"), found.changes.map(({ effect, pointer, message }) => `${effect}, ${pointer || "/"}: ${message}`));
}

export function start() {
  by("schema-version").addEventListener("change", () =>
    show(by("schema-name").textContent.split("@")[0], by("schema-version").value),
  );
  by("schema-before").addEventListener("change", compare);
}

export async function enter() {
  const { schemas } = await get("v1/schemas");
  by("schema-list").replaceChildren(
    ...schemas.map(({ name, version, source }) => {
      const row = document.createElement("tr");
      const button = document.createElement("button");
      button.textContent = name;
      button.addEventListener("click", () => show(name));
      const cells = [button, String(version), source].map((content) => {
        const cell = document.createElement("td");
        cell.append(content);
        return cell;
      });
      row.append(...cells);
      return row;
    }),
  );
}
