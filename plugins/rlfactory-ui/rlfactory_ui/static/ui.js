// What a page does beyond links and forms. Each behaviour is asked for by a data attribute of an element.
"use strict";

async function partOf(url, form, button) {
  const fields = new URLSearchParams(new FormData(form));
  if (button?.dataset.name) fields.set(button.dataset.name, button.dataset.value);
  const answer = await fetch(url, {method: "POST", body: fields, headers: {"x-part": "1"}});
  return [answer.ok, await answer.text()];
}

function problem(text) {
  const found = document.createElement("p");
  found.className = "problem"; found.setAttribute("role", "alert"); found.textContent = text;
  return found;
}

// Puts a part of a page in its place. Parts come from our own templates, which escape all that they insert.
// data-now: a button within it is pressed at once, for a part that has more to come.
function fill(place, ok, text) {
  if (ok) place.innerHTML = text; else place.replaceChildren(problem(text));
  place.querySelector("button[data-now]")?.click();
}

// Marks the fields that a message is about: it names their key or label, or quotes what is written in them.
function mark(form, text) {
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  const about = [...form.elements].filter(field => {
    if (!field.name || field.type === "checkbox" || field.name === "keys") return false;
    const label = field.closest("label")?.firstChild?.textContent.trim() ?? "", value = field.value.trim();
    const key = field.name.replace("key.", "");
    const names = [key.includes(".") && key, label && `“${label}”`, value.length > 2 && field.type !== "select-one" && value];
    return names.some(name => name && new RegExp(`(?<![\\w.-])${RegExp.escape?.(name) ?? name.replace(/[^\w]/g, "\\$&")}(?![\\w-])`).test(text));
  });
  for (const field of about) field.setAttribute("aria-invalid", "true");
  for (let place = about[0]?.closest("details"); place; place = place.parentElement.closest("details")) place.open = true;
  return about[0];
}

// data-posts: a button posts its form, and the answer goes to data-into, or into the field data-sets.
document.addEventListener("click", async event => {
  const button = event.target.closest("button[data-posts]");
  if (!button || button.getAttribute("aria-busy")) return;
  button.setAttribute("aria-busy", "true");
  try {
    const [ok, text] = await partOf(button.dataset.posts, button.form, button);
    if (button.dataset.sets && ok) {
      button.form.elements[button.dataset.sets].value = text;
      button.form.dispatchEvent(new Event("input", {bubbles: true}));
    } else {
      fill(document.querySelector(button.dataset.into ?? "#preview"), ok, text);
    }
  } finally {
    button.removeAttribute("aria-busy");
  }
});

// data-sends: a file that is chosen, or dropped on the field, is sent; its place on the server goes to the field data-sets.
document.addEventListener("change", async event => {
  const input = event.target.closest("input[data-sends]"), file = input?.files[0];
  if (!file) return;
  const url = `${input.dataset.sends}?name=${encodeURIComponent(file.name)}`;
  const answer = await fetch(url, {method: "POST", body: file, headers: {"x-part": "1"}}), text = await answer.text();
  if (!answer.ok) { fill(document.querySelector(input.dataset.into), false, text); return; }
  input.form.elements[input.dataset.sets].value = text;
  input.form.dispatchEvent(new Event("input", {bubbles: true}));
});

// What a field that is left empty means, in this task's configuration.
function resolved(form, values) {
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements[name];
    if (field?.tagName === "INPUT") field.placeholder = value;
    if (field?.tagName === "SELECT" && !field.value) field.options[0].textContent = value;
  }
}

// data-starts: the form is sent; if it is refused it stays as it is, and what is wrong is said and marked.
for (const form of document.querySelectorAll("form[data-starts]")) {
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const button = event.submitter ?? form.querySelector("button.main");
    if (button.getAttribute("aria-busy")) return;
    button.setAttribute("aria-busy", "true");
    try {
      const [ok, text] = await partOf(form.dataset.starts, form);
      if (ok) { location.assign(text); return; }
      fill(document.querySelector("#refused"), false, text);
      mark(form, text)?.focus();
    } finally {
      button.removeAttribute("aria-busy");
    }
  });
}

// data-choice: a button writes its value into a field of the form.
document.addEventListener("click", event => {
  const button = event.target.closest("button[data-choice]");
  if (!button) return;
  const field = button.form.elements[button.dataset.choice];
  field.value = button.value;
  for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {bubbles: true}));
});

// data-preview: the form's meaning is shown again a moment after the last change.
for (const form of document.querySelectorAll("form[data-preview]")) {
  let waiting = 0, asked = 0;
  const show = async () => {
    const mine = ++asked, [ok, text] = await partOf(form.dataset.preview, form);
    if (mine !== asked) return;
    const place = document.querySelector("#preview");
    fill(place, ok, text);
    mark(form, place.querySelector(".problem")?.textContent ?? "");
    resolved(form, JSON.parse(place.querySelector("[data-values]")?.dataset.values ?? "{}"));
  };
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 600); });
  for (const input of form.querySelectorAll("[data-fills]")) {
    const options = async () => fill(document.querySelector(input.dataset.into), ...await partOf(input.dataset.fills, form));
    input.addEventListener("change", options);
    if (input.value) options();
  }
  if ([...new FormData(form).values()].some(Boolean)) show();
}

// data-live: the part is fetched again whenever the run's files change; what is open or scrolled stays so.
for (const place of document.querySelectorAll("[data-live]")) {
  const version = place.firstElementChild?.dataset.version ?? "";
  const source = new EventSource(`${place.dataset.events}?version=${encodeURIComponent(version)}`);
  let busy = false, again = false;
  const renew = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(place.dataset.live, {headers: {"x-part": "1"}});
      if (answer.ok && !place.contains(document.activeElement)) {
        const open = [...place.querySelectorAll("details")].map(item => item.open);
        place.innerHTML = await answer.text();
        place.querySelectorAll("details").forEach((item, at) => { item.open = open[at] ?? false; });
      } else { again = answer.ok; }
    } finally {
      busy = false;
      if (again) { again = false; setTimeout(renew, 1000); }
    }
  };
  source.addEventListener("change", renew);
  source.addEventListener("gone", () => location.reload());
}

// data-loads: what is folded is fetched when it is opened.
for (const place of document.querySelectorAll("details[data-loads]")) {
  place.addEventListener("toggle", async () => {
    if (!place.open) return;
    const answer = await fetch(place.dataset.loads, {headers: {"x-part": "1"}});
    fill(place.querySelector("div"), answer.ok, await answer.text());
  });
}

for (const place of document.querySelectorAll("[data-reload]")) {
  if (place.dataset.reload) setTimeout(() => location.reload(), Number(place.dataset.reload));
}

// Keys: data-key on a link follows it, on a field goes to it; the arrows go through the items of a list.
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (target) {
    event.preventDefault();
    if (target.href) target.click(); else target.focus();
    return;
  }
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  const items = [...document.querySelectorAll("a[data-item]")];
  if (!step || !items.length) return;
  event.preventDefault();
  const at = items.indexOf(document.activeElement);
  items[Math.max(0, Math.min(items.length - 1, at + step))].focus();
});
