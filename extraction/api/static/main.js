// Views by the address's fragment, and the key where the API asks for one.

import { setKey } from "./api.js";
import * as extract from "./extract.js";
import * as schemas from "./schemas.js";
import * as status from "./status.js";

const views = { extract, schemas, status };

async function route() {
  const name = location.hash.slice(1) in views ? location.hash.slice(1) : "extract";
  for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const [other, view] of Object.entries(views)) if (other !== name) view.leave?.();
  try {
    await views[name].enter();
  } catch (error) {
    console.warn(error.message);
  }
}

document.addEventListener("key-wanted", () => {
  document.getElementById("key-form").hidden = false;
});
document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(document.getElementById("key").value.trim());
  event.target.hidden = true;
  route();
});
for (const view of Object.values(views)) view.start();
addEventListener("hashchange", route);
route();
