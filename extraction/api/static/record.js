// A record as JSON whose values lead to their places in the page's text, and back.

const escapePointer = (key) => key.replaceAll("~", "~0").replaceAll("/", "~1");

function span(text, classes = "") {
  const element = document.createElement("span");
  element.textContent = text;
  element.className = classes;
  return element;
}

// Shows `record` in `target`; `evidence` and `known` as in a result of the API.
export function showRecord(target, record, evidence, known) {
  const places = new Map(evidence.map((one) => [one.pointer, one]));
  const isKnown = (pointer) => known.some((at) => pointer === at || pointer.startsWith(`${at}/`));
  const write = (value, pointer, indent) => {
    const inner = `${indent}  `;
    if (value !== null && typeof value === "object") {
      const [open, close] = Array.isArray(value) ? "[]" : "{}";
      const entries = Object.entries(value);
      if (!entries.length) return [span(open + close)];
      const parts = [span(open)];
      entries.forEach(([key, item], i) => {
        const name = Array.isArray(value) ? "" : `${JSON.stringify(key)}: `;
        parts.push(span(`${i ? "," : ""}\n${inner}${name}`, "dim"));
        parts.push(...write(item, `${pointer}/${escapePointer(key)}`, inner));
      });
      parts.push(span(`\n${indent}${close}`));
      return parts;
    }
    const place = places.get(pointer);
    const element = span(JSON.stringify(value), "value");
    element.dataset.pointer = pointer;
    if (isKnown(pointer)) element.classList.add("known");
    if (place?.source === "text") {
      element.classList.add("found");
      element.tabIndex = 0;
      element.title = place.ambiguous ? "stands elsewhere on the page too" : "show on the page";
    } else if (place) {
      element.title = `from the page's metadata: ${place.path}`;
    } else if (value !== null) {
      element.title = "stands nowhere on the page: inferred, or made up";
    }
    return [element];
  };
  target.replaceChildren(...write(record, "", ""));
}

// Shows the page's text with the evidence marked. Offsets count code points.
export function showText(target, text, evidence) {
  const points = Array.from(text);
  const places = evidence.filter((one) => one.source === "text").sort((a, b) => a.start - b.start);
  const parts = [];
  let at = 0;
  for (const { start, end, pointer } of places) {
    if (start < at) {
      const last = parts.at(-1);
      if (last?.dataset) last.dataset.pointers += ` ${pointer}`;
      continue;
    }
    parts.push(points.slice(at, start).join(""));
    const mark = document.createElement("mark");
    mark.textContent = points.slice(start, end).join("");
    mark.dataset.pointers = pointer;
    mark.title = pointer;
    parts.push(mark);
    at = end;
  }
  parts.push(points.slice(at).join(""));
  target.replaceChildren(...parts);
}

// Pointing at a value lights its place; choosing it scrolls there.
export function connect(record, text) {
  const markOf = (pointer) =>
    [...text.querySelectorAll("mark")].find((mark) => mark.dataset.pointers.split(" ").includes(pointer));
  const light = (event, on) => {
    const value = event.target.closest(".found");
    if (value) markOf(value.dataset.pointer)?.classList.toggle("lit", on);
  };
  const jump = (event) => {
    const value = event.target.closest(".found");
    if (value) markOf(value.dataset.pointer)?.scrollIntoView({ block: "center" });
  };
  for (const [name, on] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
    record.addEventListener(name, (event) => light(event, on));
  }
  record.addEventListener("click", jump);
  record.addEventListener("keydown", (event) => event.key === "Enter" && jump(event));
}
